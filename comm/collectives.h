/* Collectives of a step on device buffers, for the CPU device.
 *
 * A rank hands over the collectives of its program once, in launch order (the same on every rank). Each is then
 * issued at its place in the step and completed at its first waiter, so that communication overlaps computation
 * without a thread of its own:
 *
 *   issue(i)     says "my input is ready"; never blocks
 *   complete(i)  returns when this rank's output is ready: waits for the others' issue(i), pulls their parts
 *   release(i)   returns when every rank has read this rank's input, so that its bytes may be overwritten
 *   finish()     end of a step: completes and releases all that is pending, makes the list ready for the next step
 *
 * Inside a node a rank pulls straight from the other ranks' arenas: every arena is shared memory, the arenas of all
 * ranks have the same layout, so a peer's input lies at the same offset as one's own. Nothing is copied twice and no
 * staging buffer exists. Pages of a peer's arena are dropped from this process after use, so that they do not count
 * as its resident memory. Between nodes parts travel as point-to-point messages.
 *
 * Sums run in the order of ranks 0, 1, 2 ... of the group, in fp32: the same bits on every rank and every run.
 *
 * Waiting yields the core (spin briefly, then yield, then sleep in growing steps), so more ranks than cores is an
 * ordinary case. A wait that lasts longer than the time-out, or that finds another rank failed, returns false. */
#ifndef FSDP_COMM_COLLECTIVES_H
#define FSDP_COMM_COLLECTIVES_H

#include "comm/world.h"
#include "engine/device/device.h"

typedef struct collective {
    operation_kind kind;   /* all_gather, reduce_scatter, all_reduce */
    int group_first;       /* the group is ranks first, first + stride, ... (size of them), this rank among them */
    int group_stride;
    int group_size;
    dtype type;            /* fp32; fp64 for all_gather only */
    int64_t count;         /* elements of one rank's part; all_reduce: of the whole tensor */
    int64_t input, output; /* bytes from the arena's start; all_reduce: may be equal */
    bool accumulate;       /* reduce_scatter: add to the output */
    const char *name;      /* for messages: "reduce block3, pass 1"; owned by the caller, outlives the collectives */
} collective;

typedef struct collectives collectives;

typedef enum transport { TRANSPORT_AUTO, TRANSPORT_WINDOW, TRANSPORT_MESSAGES } transport;

/* Where each rank's arena lies for this rank; `list` is copied. transport: auto pulls inside a node and sends messages
 * between nodes; window refuses several nodes; messages never uses shared memory. The arena belongs to the caller and
 * outlives the collectives. Collective over the world. `d` parallelises copies and sums over its threads. */
bool collectives_open(world *w, device *d, const device_memory *arena, const collective *list, int32_t count,
                      transport how, double timeout_seconds, collectives **opened, error *e);

/* Bytes of workspace that messages need inside the arena (0 for window): asked before the arena is placed. */
int64_t collectives_workspace(const world *w, const collective *list, int32_t count, transport how);

void collectives_close(collectives *c);

void collectives_issue(collectives *c, int32_t index);
bool collectives_complete(collectives *c, int32_t index, error *e);
bool collectives_release(collectives *c, int32_t index, error *e);
bool collectives_finish(collectives *c, error *e);

/* Between operations: moves what can move without waiting (messages only; a no-op for the window). */
void collectives_poll(collectives *c);

/* Seconds this rank has spent waiting for others, and moving bytes, since the last call with reset. */
typedef struct collectives_times {
    double waiting, moving;
} collectives_times;
collectives_times collectives_spent(collectives *c, bool reset);

/* Tells all ranks that this one failed: their next or current wait returns false with this error. */
void collectives_fail(collectives *c, const error *e);

#endif
