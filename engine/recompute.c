#include "engine/recompute.h"

#include "engine/checked.h"

/* Classes of outputs that are dropped together. A rotated q|k|v and a residual sum are as dear as the matmul outputs
 * that they come from. */
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

/* Operations that a processor computes in the time in which its memory moves a byte: of a GPU with 600 TFLOP/s and
 * 2.5 TB/s. CPUs have fewer, which favours the same classes. */
static const double FLOPS_PER_BYTE = 240;

static bool is_droppable(const tensor *x) {
    return x->role == ROLE_ACTIVATION && x->part != PART_OTHER && x->part != PART_ENTRY;
}

/* Time of writing a class again, for each byte that dropping it frees; in bytes that memory moves meanwhile. Attention
 * may be dearer than a matmul or cheaper: that depends on the sequence and the width. */
static void price_classes(const program *forward, double price[CLASS_COUNT]) {
    double time[CLASS_COUNT] = {0}, bytes[CLASS_COUNT] = {0};
    for (int32_t i = 0; i < forward->operation_count; i++) {
        const operation *o = &forward->operations[i];
        const launch l = program_launch(forward, o, NULL);
        const tensor *first = o->out[0] == NO_TENSOR ? NULL : &forward->tensors[o->out[0]];
        if (first == NULL || !is_droppable(first))
            continue;
        time[class_of(o->kind, 0)] += operation_bytes(&l) + operation_flops(&l) / FLOPS_PER_BYTE;
        bytes[class_of(o->kind, 0)] += (double)first->bytes;
    }
    for (int class = 0; class < CLASS_COUNT; class ++)
        price[class] = bytes[class] > 0 ? time[class] / bytes[class] : 0;
}

/* What a policy drops, resolved for one program. Level n of RECOMPUTE_MEMORY drops the n / blocks cheapest classes in
 * all blocks, and the next one in the first n mod blocks. */
typedef struct choice {
    recompute_policy policy;
    int32_t level, blocks;
    int turn[CLASS_COUNT]; /* of a class: 0 is dropped first */
} choice;

static choice make_choice(const program *forward, recompute_policy policy, int32_t level) {
    choice c = {.policy = policy, .level = level, .blocks = blocks_of(forward)};
    double price[CLASS_COUNT];
    price_classes(forward, price);
    for (int class = 0; class < CLASS_COUNT; class ++)
        for (int other = 0; other < CLASS_COUNT; other++)
            c.turn[class] += price[other] < price[class] || (price[other] == price[class] && other < class);
    return c;
}

static bool dropped(const choice *c, const tensor *x, int class) {
    if (!is_droppable(x))
        return false;
    switch (c->policy) {
    case RECOMPUTE_NONE:
        return false;
    case RECOMPUTE_BLOCK:
        return true;
    case RECOMPUTE_ATTENTION:
        return x->part == PART_ATTENTION;
    case RECOMPUTE_MEMORY:
        return c->turn[class] * c->blocks + x->block < c->level;
    }
    return false;
}

bool *recompute_keep(const program *forward, recompute_policy policy, int32_t level) {
    const choice c = make_choice(forward, policy, level);
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
