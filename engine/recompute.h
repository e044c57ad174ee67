/* Which activations are kept for the backward: memory against time. What is dropped is written again when the backward
 * needs it (engine/autodiff.h).
 *
 *   none       everything is kept
 *   block      only what each block starts from
 *   attention  all but the attention part of each block
 *   memory     what costs least time for its bytes is dropped, class by class and block by block, until a budget holds:
 *              levels 0 (everything kept) .. recompute_levels (as block), each dropping more than the one before */
#ifndef FSDP_ENGINE_RECOMPUTE_H
#define FSDP_ENGINE_RECOMPUTE_H

#include "engine/program.h"

typedef enum recompute_policy {
    RECOMPUTE_NONE,
    RECOMPUTE_BLOCK,
    RECOMPUTE_ATTENTION,
    RECOMPUTE_MEMORY
} recompute_policy;

/* The highest level of RECOMPUTE_MEMORY for this forward program. */
int32_t recompute_levels(const program *forward);

/* keep[t] for every tensor of the forward program; freed by the caller. level: for RECOMPUTE_MEMORY only. */
bool *recompute_keep(const program *forward, recompute_policy policy, int32_t level);

#endif
