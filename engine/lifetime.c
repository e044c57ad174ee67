#include "engine/lifetime.h"

#include "engine/checked.h"

#include <stdlib.h>

static void touch(const program *p, int32_t *last, tensor_id t, int32_t position) {
    if (t != NO_TENSOR)
        last[program_base(p, t)] = position;
}

/* For every tensor that is no view: the last operation that accesses it or one of its views. */
static int32_t *last_accesses(const program *p) {
    int32_t *last = memory_allocate((size_t)p->tensor_count, sizeof *last);
    for (int32_t t = 0; t < p->tensor_count; t++)
        last[t] = NO_OPERATION;
    for (int32_t i = 0; i < p->operation_count; i++) {
        const operation *o = &p->operations[i];
        for (int k = 0; k < OPERATION_INPUTS; k++)
            touch(p, last, o->in[k], i);
        for (int k = 0; k < OPERATION_OUTPUTS; k++)
            touch(p, last, o->out[k], i);
        touch(p, last, o->workspace, i);
    }
    return last;
}

/* May output k of this operation take the bytes of the input that its kind allows? */
static bool takes_over(const program *p, const operation *o, int k, const int32_t *last, int32_t position) {
    int input = operation_signature_of(o->kind)->shares[k];
    if (input < 0 || o->out[k] == NO_TENSOR || o->in[input] == NO_TENSOR || (o->accumulate >> k & 1))
        return false;
    const tensor *to = &p->tensors[o->out[k]], *from = &p->tensors[o->in[input]];
    return to->base == NO_TENSOR && from->base == NO_TENSOR && to->bytes == from->bytes && !to->persistent &&
           !from->persistent && last[o->in[input]] == position;
}

static void access(lifetime *lives, const program *p, tensor_id t, int32_t position) {
    if (t == NO_TENSOR)
        return;
    lifetime *life = &lives[lives[program_base(p, t)].storage];
    if (life->first == NO_OPERATION)
        life->first = position;
    life->last = position;
}

lifetime *lifetimes_of(const program *p) {
    lifetime *lives = memory_allocate((size_t)p->tensor_count, sizeof *lives);
    int32_t *last = last_accesses(p);
    for (tensor_id t = 0; t < p->tensor_count; t++)
        lives[t] = (lifetime){program_base(p, t), NO_OPERATION, NO_OPERATION, p->tensors[t].bytes};
    for (int32_t i = 0; i < p->operation_count; i++) {
        const operation *o = &p->operations[i];
        for (int k = 0; k < OPERATION_OUTPUTS; k++)
            if (takes_over(p, o, k, last, i))
                lives[o->out[k]].storage = lives[o->in[(int)operation_signature_of(o->kind)->shares[k]]].storage;
        for (int k = 0; k < OPERATION_INPUTS; k++)
            access(lives, p, o->in[k], i);
        for (int k = 0; k < OPERATION_OUTPUTS; k++)
            access(lives, p, o->out[k], i);
        access(lives, p, o->workspace, i);
    }
    for (tensor_id t = 0; t < p->tensor_count; t++) /* a view follows its base, which may have taken bytes over */
        lives[t].storage = lives[program_base(p, t)].storage;
    free(last);
    return lives;
}

bool *units_outside_blocks(const program *p) {
    bool *outside = memory_allocate((size_t)p->unit_count, sizeof *outside);
    for (int32_t u = 0; u < p->unit_count; u++)
        outside[u] = true;
    for (int32_t i = 0; i < p->operation_count; i++)
        if (p->operations[i].kind == OPERATION_ATTENTION)
            outside[p->operations[i].unit] = false;
    return outside;
}
