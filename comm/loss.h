/* Private to comm/: what is said when ranks of other nodes are lost, and by whom: the lowest rank that is left among
 * those that watch (the lowest of each node). */
#ifndef FSDP_COMM_LOSS_H
#define FSDP_COMM_LOSS_H

#include "comm/failure.h"

enum { HOST_NAME_BYTES = 64 };

typedef struct roster {
    int size, nodes;
    const int *node_of;             /* [size] */
    char (*hosts)[HOST_NAME_BYTES]; /* [nodes] */
} roster;

int roster_lowest_rank(const roster *r, int node);

/* A node as "host (ranks 2-3)". */
void roster_describe(const roster *r, int node, char *text, int text_size);

/* The process of this rank has ended. */
failure loss_of_rank(const roster *r, int rank);

/* Nothing has been heard of `node` at `here` for that many seconds. */
failure loss_of_node(const roster *r, int node, double silence, int here);

/* `here` has heard of no other node. */
failure loss_of_all_others(const roster *r, double silence, int here);

#endif
