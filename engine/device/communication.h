/* What a device that queues work offers for collectives among the devices of several ranks: CUDA offers NCCL. Whose
 * turn it is, time-outs and failures are the business of comm/collectives_queued.c.
 *
 * A communicator joins the ranks of a group, its members, on one of the device's streams. Calls on it are queued there,
 * in the same order by all members. Counts are elements. */
#ifndef FSDP_ENGINE_DEVICE_COMMUNICATION_H
#define FSDP_ENGINE_DEVICE_COMMUNICATION_H

#include "engine/device/device.h"
#include "engine/device/part_sum.h"

typedef struct communicator communicator;

enum { COMMUNICATOR_ID_BYTES = 128 };

/* What travels to a member and comes from it; a count of 0: nothing. A member may send to itself. */
typedef struct exchange_part {
    const void *send;
    void *receive;
    int64_t send_count, receive_count;
} exchange_part;

/* Paths of files with the rings among the members of this node, as comm/ring_nccl.h writes them. NULL: none. */
typedef struct ring_files {
    const char *given; /* to use these; none: the library looks for its own */
    const char *used;  /* where the library is to write which it uses; one of the members does */
} ring_files;

typedef struct communication {
    const char *name; /* "NCCL 2.28.3" */

    /* One member makes the id, all open with it at the same time. Blocks until all have come, at most so many seconds;
     * after a failure the process can only end. */
    bool (*make_id)(void *id, error *e);
    bool (*open)(device *d, int stream, const void *id, int members, int member, ring_files rings, double seconds,
                 communicator **opened, error *e);
    /* Nothing is under way any more. */
    void (*close)(communicator *c);
    /* Instead of closing: ends on this device what waits for members that do not come. */
    void (*abort)(communicator *c);
    /* False: it has noticed that a member is lost, or that what is under way has failed. */
    bool (*healthy)(communicator *c, error *e);

    /* A part may lie at its place in the whole; all_reduce may be in place. Sums are in an order of the library's own,
     * rounded to the type. */
    bool (*all_gather)(communicator *c, const void *part, void *whole, int64_t count, dtype type, error *e);
    bool (*reduce_scatter)(communicator *c, const void *whole, void *part, int64_t count, dtype type, error *e);
    bool (*all_reduce)(communicator *c, const void *in, void *out, int64_t count, dtype type, error *e);
    bool (*exchange)(communicator *c, const exchange_part *with, dtype type, error *e); /* with[members] */

    /* No communication: a sum of parts that lie in this device's memory. */
    bool (*sum)(device *d, int stream, const part_sum *sum, error *e);

    /* No communication: numbers, 0 at first, that the device adds 1 to when what was queued on the stream before is
     * done, and that the host may read at any time. */
    bool (*make_counters)(int32_t count, int64_t **counters, error *e);
    void (*drop_counters)(int64_t *counters);
    bool (*count)(device *d, int stream, int64_t *counter, error *e);
} communication;

#endif
