/* Turns: runs of compute operations of one unit and micro-batch, the grain in which parameters are gathered
 * (shard/schedule.h) and what is being reduced is held (engine/hold.h). */
#ifndef FSDP_ENGINE_TURN_H
#define FSDP_ENGINE_TURN_H

#include "engine/program.h"

typedef struct turn {
    int32_t unit, pass;
    int32_t first, last; /* positions in the list; compute operations in between belong to it */
} turn;

/* The turns of forward and backward in the order of the list, *count of them; freed by the caller. Casts belong to
 * none: they go with gathers and reductions. */
turn *turns_of(const program *p, int32_t *count);

#endif
