#include "engine/recompute.h"

#include "engine/checked.h"

/* Classes of outputs, cheapest first in time for the bytes they free: what elementwise operations make is written again
 * at the speed of memory, what norms make likewise; then come attention's heads, and at last what matmuls make. A
 * rotated q|k|v and a residual sum are as dear as the matmul outputs that they come from. */
enum { CLASS_ACTIVATION, CLASS_NORM, CLASS_ATTENTION, CLASS_MATMUL, CLASS_COUNT };

static int class_of(operation_kind kind, int output) {
    switch (kind) {
    case OPERATION_GELU:
    case OPERATION_SWIGLU:
        return CLASS_ACTIVATION;
    case OPERATION_NORM:
        return output == 1 ? CLASS_MATMUL : CLASS_NORM;
    case OPERATION_ATTENTION:
        return CLASS_ATTENTION;
    default:
        return CLASS_MATMUL;
    }
}

static int32_t blocks_of(const program *forward) {
    int32_t blocks = 0;
    for (tensor_id t = 0; t < forward->tensor_count; t++)
        blocks = (int32_t)maximum(blocks, forward->tensors[t].block + 1);
    return blocks;
}

int32_t recompute_levels(const program *forward) {
    return CLASS_COUNT * blocks_of(forward);
}

/* What a policy drops, resolved for one program. Level n of RECOMPUTE_MEMORY drops the first n / blocks classes in all
 * blocks, and the next one in the first n mod blocks. */
typedef struct choice {
    recompute_policy policy;
    int32_t level, blocks;
} choice;

static bool dropped(const choice *c, const tensor *x, int class) {
    if (x->role != ROLE_ACTIVATION || x->part == PART_OTHER || x->part == PART_ENTRY)
        return false;
    switch (c->policy) {
    case RECOMPUTE_NONE:
        return false;
    case RECOMPUTE_BLOCK:
        return true;
    case RECOMPUTE_ATTENTION:
        return x->part == PART_ATTENTION;
    case RECOMPUTE_MEMORY:
        return class * c->blocks + x->block < c->level;
    }
    return false;
}

bool *recompute_keep(const program *forward, recompute_policy policy, int32_t level) {
    const choice c = {policy, level, blocks_of(forward)};
    bool *keep = memory_allocate((size_t)forward->tensor_count, sizeof *keep);
    for (tensor_id t = 0; t < forward->tensor_count; t++)
        keep[t] = true;
    for (int32_t i = 0; i < forward->operation_count; i++) {
        const operation *o = &forward->operations[i];
        for (int k = 0; k < OPERATION_OUTPUTS; k++)
            if (o->out[k] != NO_TENSOR)
                keep[o->out[k]] = !dropped(&c, &forward->tensors[o->out[k]], class_of(o->kind, k));
    }
    return keep;
}
