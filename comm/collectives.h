/* Collectives of a step on device buffers, for the CPU device.
 *
 * A rank hands over the collectives of its program once, in launch order (the same on every rank). Each is then
 * issued at its place in the step and completed at its first waiter, so that communication overlaps computation
 * without a thread of its own:
 *
 *   issue(i)     says "my input is ready, my output may be written"; never blocks
 *   complete(i)  returns when this rank's output is ready: waits for the others' issue(i), pulls their parts
 *   release(i)   completes, and returns when every rank has read this rank's input, so that its bytes may be
 *                overwritten; the output of an all_reduce is read by the others as well
 *   finish()     end of a step, when all are issued: completes and releases all, makes the list ready for the next step
 *
 * Every rank issues in the order of the list, and all make the same calls in the same order: else ranks wait for each
 * other. Completing or releasing a collective does the same for all earlier ones of its stream; collectives of
 * different streams are independent.
 *
 * A rank's own part of an all_gather may already lie in its place in the output, its part of a reduce_scatter's input
 * may be the output, and an all_reduce may be in place.
 *
 * Inside a node a rank pulls straight from the other ranks' arenas: every arena is shared memory, the arenas of all
 * ranks have the same layout, so a peer's input lies at the same offset as one's own. Nothing is copied twice and no
 * staging buffer exists. Pages of a peer's arena are dropped from this process after use, so that they do not count
 * as its resident memory. Between nodes parts travel as point-to-point messages.
 *
 * Sums are fp32: runs of `odd` members of the group are summed left to right, in the order of ranks, and these sums
 * pairwise (odd == group_size: all left to right). The same bits on every rank and every run.
 *
 * Waiting yields the core (spin briefly, then yield, then sleep in growing steps), so more ranks than cores is an
 * ordinary case. A wait that lasts longer than the time-out, or that finds another rank failed, returns false. */
#ifndef FSDP_COMM_COLLECTIVES_H
#define FSDP_COMM_COLLECTIVES_H

#include "comm/world.h"
#include "engine/device/device.h"

enum { COLLECTIVE_STREAMS = 8 };

typedef struct collective {
    operation_kind kind; /* all_gather, reduce_scatter, all_reduce */
    int stream;          /* 0 .. COLLECTIVE_STREAMS-1 */
    int group_first;     /* the group is ranks first, first + stride, ... (size of them), this rank among them */
    int group_stride;
    int group_size;
    dtype type;            /* fp32; fp64 for all_gather only */
    int64_t count;         /* elements of one rank's part; all_reduce: of the whole tensor */
    int64_t input, output; /* bytes from the arena's start; see above for what may coincide */
    int odd;               /* sums: see above; group_size is odd times a power of two */
    bool accumulate;       /* reduce_scatter: add to the output */
    const char *name; /* for messages: "all_gather of block3, ..."; owned by the caller, outlives the collectives */
} collective;

typedef struct collectives collectives;

typedef enum transport { TRANSPORT_AUTO, TRANSPORT_WINDOW, TRANSPORT_MESSAGES } transport;

/* transport: auto pulls inside a node and sends messages between nodes; window refuses several nodes; messages never
 * uses shared memory. */
typedef struct collectives_settings {
    device *device;             /* parallelises copies and sums over its threads */
    const device_memory *arena; /* belongs to the caller and outlives the collectives */
    int64_t workspace;          /* bytes from the arena's start of collectives_workspace() bytes, 64-byte aligned */
    transport transport;
    double timeout; /* seconds that a wait may take */
} collectives_settings;

/* Bytes of workspace that sums of messages need inside the arena, for all collectives together (0 when no peer is
 * reached by messages): asked before the arena is placed, so inputs and outputs of the list are not read. */
int64_t collectives_workspace(const world *w, const collective *list, int32_t count, transport how);

/* `list` is copied. Collective over the world: all ranks succeed, or all fail with the same error; ranks whose lists
 * differ (in anything but group_first and name) are found here. */
bool collectives_open(world *w, const collectives_settings *settings, const collective *list, int32_t count,
                      collectives **opened, error *e);

/* After collectives_finish, or after a failure when the process goes on (tests); a program that ends after a failure
 * leaves out closing, since messages may be under way. */
void collectives_close(collectives *c);

void collectives_issue(collectives *c, int32_t index);
bool collectives_complete(collectives *c, int32_t index, error *e);
bool collectives_release(collectives *c, int32_t index, error *e);
bool collectives_finish(collectives *c, error *e);

/* Between operations: moves what can move without waiting (messages only; a no-op for the window). */
void collectives_poll(collectives *c);

/* Seconds this rank has spent waiting for others, and moving bytes (with messages: all that is done for them), since
 * the last call with reset. */
typedef struct collectives_times {
    double waiting, moving;
} collectives_times;
collectives_times collectives_spent(collectives *c, bool reset);

/* When this rank's output of a collective was ready in the latest step, in seconds of the monotonic clock. */
double collectives_done_at(const collectives *c, int32_t index);

/* Tells all ranks that this one failed: their next or current wait returns false with this error, named after this
 * rank if it is its own. Then comes world_agree: see comm/world.h. Not needed for an error that a wait returned. */
void collectives_fail(collectives *c, const error *e);

#endif
