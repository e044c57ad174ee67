/* How the monotonic clocks of the ranks relate, so that times of several ranks can be drawn on one axis.
 *
 * The ranks of a node share a clock. Between nodes one rank of each node and rank 0 exchange short messages: rank 0
 * asks at a, the other answers with its clock b, the answer is there at c; then b was read between a and c. With
 * offset = b - (a + c) / 2 the error is at most (c - a) / 2; of several exchanges the shortest is kept. */
#ifndef FSDP_COMM_CLOCK_H
#define FSDP_COMM_CLOCK_H

#include "comm/world.h"

typedef struct clock_offset {
    double seconds; /* this rank's clock minus rank 0's */
    double error;   /* at most; 0 on rank 0's node */
} clock_offset;

/* Collective. */
clock_offset clock_compare(world *w);

#endif
