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

/* ---- holding what is being reduced ---- */

/* A device computes about 2,000 FLOPs while a byte is reduced (600 TFLOP/s, 300 GB/s). */
enum { FLOPS_PER_REDUCED_BYTE = 2000, TURNS_HELD_MOST = 4 };

/* A run of compute operations of one unit and pass, as shard/schedule.h has them, found again in the list. */
typedef struct turn {
    int32_t first, last; /* positions of its first and last operation */
    int32_t unit, pass;
    double flops;
} turn;

/* The turns of forward and backward in the order of the list; freed by the caller. */
static turn *turns_of(const program *p, int32_t *count) {
    turn *turns = memory_allocate((size_t)p->operation_count, sizeof *turns);
    *count = 0;
    for (int32_t i = 0; i < p->operation_count; i++) {
        const operation *o = &p->operations[i];
        if (o->stream != STREAM_COMPUTE || o->phase == PHASE_UPDATE || o->kind == OPERATION_CAST)
            continue; /* casts go with gathers and reductions */
        if (*count == 0 || turns[*count - 1].unit != o->unit || turns[*count - 1].pass != o->pass)
            turns[(*count)++] = (turn){.first = i, .unit = o->unit, .pass = o->pass};
        const launch l = program_launch(p, o, NULL);
        turns[*count - 1].last = i;
        turns[*count - 1].flops += operation_flops(&l);
    }
    return turns;
}

static int32_t first_turn_behind(const turn *turns, int32_t count, int32_t position) {
    int32_t low = 0, high = count;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (turns[middle].first <= position)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Until when what the reduction at `position` accesses is held. */
static int32_t end_of_hold(const program *p, const turn *turns, int32_t count, int32_t position, bool root) {
    const operation *o = &p->operations[position];
    const double wanted = root ? 2.0 * FLOPS_PER_REDUCED_BYTE * (double)p->tensors[o->in[0]].bytes : 0;
    const int32_t next = first_turn_behind(turns, count, position);
    const int32_t behind = (int32_t)minimum(count, next + TURNS_HELD_MOST);
    double flops = 0;
    int32_t end = position;
    for (int32_t t = next; t < behind && (t == next || flops < wanted); t++) {
        flops += turns[t].flops;
        end = turns[t].last;
    }
    return end;
}

void lifetimes_hold_reductions(const program *p, lifetime *lives) {
    int32_t count;
    turn *turns = turns_of(p, &count);
    bool *outside = units_outside_blocks(p);
    for (tensor_id t = 0; t < p->tensor_count; t++) {
        const int32_t last = lives[t].last;
        if (last == NO_OPERATION || p->operations[last].stream != STREAM_REDUCE)
            continue;
        const int32_t unit = p->operations[last].unit;
        lives[t].last = end_of_hold(p, turns, count, last, unit != NO_UNIT && outside[unit]);
    }
    free(outside);
    free(turns);
}
