#include "engine/hold.h"

#include "engine/checked.h"
#include "engine/place.h"
#include "engine/turn.h"

#include <stdlib.h>

/* A device computes about 2,000 FLOPs while a byte is reduced (600 TFLOP/s, 300 GB/s). */
enum { FLOPS_PER_REDUCED_BYTE = 2000, TURNS_HELD_MOST = 4 };

typedef struct holder {
    const program *p;
    lifetime *lives;
    int64_t *live; /* [operations]: bytes that live while each runs, holds included */
    int64_t limit;
    turn *turns;
    int32_t turn_count;
    bool *outside; /* [units]: of the blocks */
    int32_t shortened;
} holder;

static int64_t *live_bytes(const program *p, const lifetime *lives) {
    int64_t *live = memory_allocate((size_t)p->operation_count + 1, sizeof *live);
    for (tensor_id t = 0; t < p->tensor_count; t++) {
        if (lives[t].storage != t || p->tensors[t].persistent || lives[t].first == NO_OPERATION)
            continue;
        live[lives[t].first] += round_up(lives[t].bytes, PLACE_ALIGNMENT);
        live[lives[t].last + 1] -= round_up(lives[t].bytes, PLACE_ALIGNMENT);
    }
    for (int32_t i = 1; i < p->operation_count; i++)
        live[i] += live[i - 1];
    return live;
}

static int32_t first_turn_behind(const holder *h, int32_t position) {
    int32_t low = 0, high = h->turn_count;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (h->turns[middle].first <= position)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static double flops_of(const program *p, const turn *t) {
    double flops = 0;
    for (int32_t i = t->first; i <= t->last; i++) {
        if (p->operations[i].stream != STREAM_COMPUTE)
            continue;
        const launch l = program_launch(p, &p->operations[i], NULL);
        flops += operation_flops(&l);
    }
    return flops;
}

/* Lengthens a life to the end of a turn, if the limit allows it. */
static bool lengthen(holder *h, lifetime *life, const turn *t) {
    const int64_t bytes = round_up(life->bytes, PLACE_ALIGNMENT);
    for (int32_t i = life->last + 1; i <= t->last; i++)
        if (h->live[i] + bytes > h->limit)
            return false;
    for (int32_t i = life->last + 1; i <= t->last; i++)
        h->live[i] += bytes;
    life->last = t->last;
    return true;
}

/* Holds a storage that the reduction at `position` accesses last. */
static void hold(holder *h, lifetime *life, int32_t position) {
    const operation *o = &h->p->operations[position];
    const bool root = o->unit != NO_UNIT && h->outside[o->unit];
    double wanted = root ? 2.0 * FLOPS_PER_REDUCED_BYTE * (double)h->p->tensors[o->in[0]].bytes : 0;
    const int32_t next = first_turn_behind(h, position);
    const int32_t behind = (int32_t)minimum(h->turn_count, next + TURNS_HELD_MOST);
    for (int32_t t = next; t < behind && (t == next || wanted > 0); t++) {
        if (!lengthen(h, life, &h->turns[t])) {
            h->shortened++;
            return;
        }
        wanted -= wanted > 0 ? flops_of(h->p, &h->turns[t]) : 0;
    }
}

static void hold_operand(holder *h, tensor_id t, int32_t position) {
    if (t == NO_TENSOR)
        return;
    const tensor_id storage = h->lives[t].storage;
    if (h->lives[storage].last == position && !h->p->tensors[storage].persistent)
        hold(h, &h->lives[storage], position);
}

int32_t hold_reductions(const program *p, lifetime *lives, int64_t limit) {
    holder h = {
        .p = p, .lives = lives, .live = live_bytes(p, lives), .limit = limit, .outside = units_outside_blocks(p)};
    h.turns = turns_of(p, &h.turn_count);
    for (int32_t i = 0; i < p->operation_count; i++) {
        if (p->operations[i].stream != STREAM_REDUCE)
            continue;
        for (int k = 0; k < OPERATION_INPUTS; k++)
            hold_operand(&h, p->operations[i].in[k], i);
        for (int k = 0; k < OPERATION_OUTPUTS; k++)
            hold_operand(&h, p->operations[i].out[k], i);
    }
    free(h.live);
    free(h.turns);
    free(h.outside);
    return h.shortened;
}
