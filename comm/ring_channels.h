/* The rings as channels: NCCL runs a number of rings side by side, all at one speed. */
#ifndef FSDP_COMM_RING_CHANNELS_H
#define FSDP_COMM_RING_CHANNELS_H

#include "comm/ring_search.h"

enum { CHANNELS_MOST = 32 };   /* of a ring graph, in NCCL */
#define CHANNEL_SPEED_LIKED 25 /* GB/s that one channel is good for */

/* Numbers of channels for rings known to `s` (counts[s->count], to be freed) and their speed, so that no link holds
 * more than its bandwidth, and all together carry as near to `packing`, the best of all, as was found; a few percent
 * less with far fewer channels is preferred. Returns how many channels; 0: none fits. */
int channels_find(ring_search *s, const ring_packing *packing, double *speed, int **counts);

#endif
