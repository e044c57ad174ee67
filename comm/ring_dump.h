/* The rings that NCCL says it uses (NCCL_GRAPH_DUMP_FILE) against those that it was given (comm/ring_nccl.h). */
#ifndef FSDP_COMM_RING_DUMP_H
#define FSDP_COMM_RING_DUMP_H

#include "engine/error.h"

/* Compares the GPUs of the two files' ring graphs, channel by channel. A ring that stays inside the node may begin at
 * any of its GPUs, NCCL may have all channels twice or more often, one set after the other, and it may have numbered
 * GPUs in base 16 or 10, with or without the system's number above their own. *difference: NULL, or the first that
 * differs, in words, freed by the caller. *count: channels that were given. False: a file is no graph file, named with
 * its line. */
bool ring_dump_compare(const char *given, const char *used, int *count, char **difference, error *e);

#endif
