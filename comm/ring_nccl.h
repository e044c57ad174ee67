/* Rings in the file that NCCL takes instead of its own search (NCCL_GRAPH_FILE). */
#ifndef FSDP_COMM_RING_NCCL_H
#define FSDP_COMM_RING_NCCL_H

#include "comm/ring.h"

#include <stdio.h>

/* One graph, id 0 (ring), with a channel for each of set's. GPUs are named by their CUDA device numbers, cards by
 * NCCL's. set has channels. */
void ring_write_nccl(const topology *t, const ring_set *set, FILE *out);

#endif
