/* Which rings carry more, measured: those that the library between devices finds by itself, or those of a file. */
#ifndef FSDP_COMM_RING_TRIAL_H
#define FSDP_COMM_RING_TRIAL_H

#include "comm/collectives.h"

/* Seconds of an all_gather and a reduce_scatter, one after the other: of the slowest rank, the least of the repeats. */
typedef struct ring_trial {
    double own, given;
    int64_t bytes; /* of the whole buffer, all ranks' parts */
    int group_size;
    int repeats;
} ring_trial;

/* Measures both in turn, for about a second in all, on communicators that are made for it and closed again, in groups
 * of ranks kG .. kG+G-1, G being group_size. settings: the device, which queues; the arena, whose first `bytes` are
 * overwritten; the graph, whose file exists. Collective over the world; every rank gets the same result. */
bool ring_trial_measure(world *w, const collectives_settings *settings, int group_size, int64_t bytes,
                        ring_trial *result, error *e);

/* GB/s on the bus, as nccl-tests count it: what crosses the links of each rank. */
double ring_trial_bandwidth(const ring_trial *t, double seconds);

#endif
