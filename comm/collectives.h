/* Collectives of a step on device buffers.
 *
 * A rank hands over the collectives of its program once, in launch order (the same on every rank). Each is then
 * issued at its place in the step and completed at its first waiter, so that communication overlaps computation
 * without a thread of its own:
 *
 *   issue(i)             says "my input is ready, my output may be written"; never blocks. Of a device with streams it
 *                        starts when what was queued on the collective's stream before is done
 *   complete(i, stream)  what the caller does on that stream from now on starts when this rank's output is ready
 *   release(i, stream)   the same, and when every rank has read this rank's input, so that its bytes may be
 *                        overwritten; the output of an all_reduce is read by the others as well
 *   finish()             end of a step, when all are issued: returns when all are complete and released; makes the
 *                        list ready for the next step
 *
 * Every rank issues in the order of the list, and all make the same calls in the same order: else ranks wait for each
 * other. Completing or releasing a collective does the same for all earlier ones of its stream; collectives of
 * different streams are independent.
 *
 * A rank's own part of an all_gather may already lie in its place in the output, its part of a reduce_scatter's input
 * may be the output, and an all_reduce may be in place.
 *
 * Who moves the bytes is a backend, a table of functions:
 *
 *   collectives_host     for a device that works at once (the CPU): complete and release return when it is so
 *   collectives_queued   for devices with streams, by what they offer (engine/device/communication.h): issue queues on
 *                        the device's stream of the collective's number and records its event behind it, complete and
 *                        release queue a wait; only finish waits, with the time-out
 *   collectives_staged   for ranks that share such a device: through the host's memory, one thing after the other
 *
 * A list without collectives needs no other rank, whatever the backend. A wait that lasts longer than the time-out, or
 * that finds another rank failed, returns false. */
#ifndef FSDP_COMM_COLLECTIVES_H
#define FSDP_COMM_COLLECTIVES_H

#include "comm/world.h"
#include "engine/device/communication.h"

enum { COLLECTIVE_STREAMS = 8 };

typedef struct collective {
    operation_kind kind; /* all_gather, reduce_scatter, all_reduce */
    int stream;          /* of the device; 0 .. COLLECTIVE_STREAMS-1 */
    int group_first;     /* the group is ranks first, first + stride, ... (size of them), this rank among them */
    int group_stride;
    int group_size;
    dtype type;            /* of what travels: fp32 or bf16; all_gather: any. A reduce_scatter's output is fp32 */
    int64_t count;         /* elements of one rank's part; all_reduce: of the whole tensor */
    int64_t input, output; /* bytes from the arena's start; see above for what may coincide */
    int odd;          /* sums: runs of `odd` members from first to last, these sums pairwise; group_size is odd times
                         a power of two. 0: in an order of the backend's own, the same in every run */
    bool accumulate;  /* reduce_scatter: add to the output */
    int32_t event;    /* of the device, recorded behind it; only for a device that queues */
    const char *name; /* for messages: "all_gather of block3, ..."; owned by the caller, outlives the collectives */
} collective;

typedef enum transport { TRANSPORT_AUTO, TRANSPORT_WINDOW, TRANSPORT_MESSAGES } transport;

/* Rings for a device that queues: used by the groups that hold all ranks of each of `nodes` nodes, this one among them.
 * All zero: none. */
typedef struct ring_graph {
    ring_files files;
    int nodes;
} ring_graph;

/* transport, for the host: auto pulls inside a node and sends messages between nodes; window refuses several nodes;
 * messages never uses shared memory. */
typedef struct collectives_settings {
    device *device;
    const device_memory *arena; /* belongs to the caller and outlives the collectives */
    int64_t workspace;          /* bytes from the arena's start of the backend's workspace, 256-byte aligned */
    transport transport;
    double timeout; /* seconds that a wait may take */
    ring_graph graph;
} collectives_settings;

/* Seconds this rank has spent waiting for others, and moving bytes (with messages: all that is done for them), for the
 * collectives of one stream. NAN where work is queued: the device's stamps tell (engine/device/device.h). Waiting ends
 * when what was waited for has come: a rank that had no core to see it has been slow itself. */
typedef struct collectives_times {
    double waiting, moving;
} collectives_times;

typedef struct collectives collectives;

typedef struct collective_backend {
    const char *name; /* "host", "nccl" */

    /* Bytes of workspace inside the arena, for all collectives together: asked before the arena is placed, so inputs
     * and outputs of the list are not read. No device is needed. */
    int64_t (*workspace)(const world *w, const collective *list, int32_t count, transport how);

    /* `list` is copied. Collective over the world: all ranks succeed, or all fail with the same error; ranks whose
     * lists differ (in anything but group_first and name) are found here. */
    bool (*open)(world *w, const collectives_settings *settings, const collective *list, int32_t count,
                 collectives **opened, error *e);

    /* After finish, or after a failure when the process goes on (tests); a program that ends after a failure leaves
     * out closing, since messages may be under way. */
    void (*close)(collectives *c);

    void (*issue)(collectives *c, int32_t index);
    bool (*complete)(collectives *c, int32_t index, int stream, error *e);
    bool (*release)(collectives *c, int32_t index, int stream, error *e);
    bool (*finish)(collectives *c, error *e);

    /* The same for a step that the device has replayed as a graph, so that nothing was issued: all is complete when
     * what was queued before the event's latest record is done. NULL where collectives cannot be part of a graph. */
    bool (*finish_replayed)(collectives *c, int32_t event, error *e);

    /* Between operations: moves what can move without waiting; finds out about failures. */
    void (*poll)(collectives *c);

    /* On a stream's collectives, since the last call for this stream with reset. */
    collectives_times (*spent)(collectives *c, int stream, bool reset);

    /* When this rank's output of a collective was ready in the latest step, in seconds of the monotonic clock. NULL
     * where work is queued. */
    double (*done_at)(const collectives *c, int32_t index);

    /* This rank has done all of a step, and has waited longer than the time-out for others to come that far. As a wait
     * that lasts too long: false, with the table of who is missing. */
    bool (*time_out)(collectives *c, error *e);

    /* Tells all ranks that this one failed: their next or current wait returns false with this error, named after this
     * rank if it is its own. Then comes world_agree: see comm/world.h. Not needed for an error that a wait returned. */
    void (*fail)(collectives *c, const error *e);
} collective_backend;

extern const collective_backend collectives_host, collectives_queued, collectives_staged;

/* The first member of every backend's collectives. */
struct collectives {
    const collective_backend *backend;
};

static inline void collectives_close(collectives *c) {
    c->backend->close(c);
}
static inline void collectives_issue(collectives *c, int32_t index) {
    c->backend->issue(c, index);
}
static inline bool collectives_complete(collectives *c, int32_t index, int stream, error *e) {
    return c->backend->complete(c, index, stream, e);
}
static inline bool collectives_release(collectives *c, int32_t index, int stream, error *e) {
    return c->backend->release(c, index, stream, e);
}
static inline bool collectives_finish(collectives *c, error *e) {
    return c->backend->finish(c, e);
}
static inline bool collectives_time_out(collectives *c, error *e) {
    return c->backend->time_out(c, e);
}
static inline void collectives_poll(collectives *c) {
    c->backend->poll(c);
}
static inline void collectives_fail(collectives *c, const error *e) {
    c->backend->fail(c, e);
}

#endif
