#include "engine/waits.h"

#include "engine/checked.h"
#include "engine/lifetime.h"
#include "engine/occupancy.h"

#include <stdlib.h>

/* What has happened to a storage so far: the latest operation on each stream that wrote it, accessed it, or, as a
 * collective, let other ranks read it. */
typedef struct history {
    int32_t written[STREAM_COUNT], accessed[STREAM_COUNT], lent[STREAM_COUNT];
} history;

/* What an operation must wait for, or what is known to have happened when it starts. */
typedef struct clock {
    int32_t done[STREAM_COUNT], released[STREAM_COUNT];
    int32_t issued_on; /* needs only: collective of the same stream whose output this collective reads */
} clock;

static bool is_collective(operation_kind kind) {
    return kind == OPERATION_ALL_GATHER || kind == OPERATION_REDUCE_SCATTER || kind == OPERATION_ALL_REDUCE;
}

static void later(int32_t *into, const int32_t *from) {
    for (int s = 0; s < STREAM_COUNT; s++)
        if (from[s] > into[s])
            into[s] = from[s];
}

static void clear(int32_t *positions) {
    for (int s = 0; s < STREAM_COUNT; s++)
        positions[s] = NO_OPERATION;
}

/* Everything that a writer of these bytes must come after. */
static void after_all_access(clock *need, const history *h) {
    later(need->done, h->accessed);
    later(need->released, h->lent);
}

/* The first access to a storage comes after all that happened to those whose bytes it takes. */
static void after_earlier_occupants(const lifetime *lives, const history *histories, occupancy *bytes, tensor_id s,
                                    clock *need) {
    int32_t count;
    const tensor_id *evicted = occupancy_take(bytes, s, &count);
    for (int32_t k = 0; k < count; k++) {
        check(lives[evicted[k]].last < lives[s].first, "tensors %d and %d share bytes while both live", evicted[k], s);
        after_all_access(need, &histories[evicted[k]]);
    }
}

/* A stream executes in order, but a collective is completed late, by whoever waits for it: one that reads what an
 * earlier one of its stream writes must see that one completed before it is issued. */
static void read_needs(const operation *o, const lifetime *lives, const history *histories, tensor_id t, clock *need) {
    if (t == NO_TENSOR)
        return;
    const history *h = &histories[lives[t].storage];
    later(need->done, h->written);
    if (is_collective(o->kind) && h->written[o->stream] > need->issued_on)
        need->issued_on = h->written[o->stream];
}

static void write_needs(const program *p, const lifetime *lives, const history *histories, occupancy *bytes,
                        tensor_id t, int32_t position, clock *need) {
    if (t == NO_TENSOR)
        return;
    const tensor_id s = lives[t].storage;
    if (lives[s].first == position && !p->tensors[s].persistent)
        after_earlier_occupants(lives, histories, bytes, s, need);
    after_all_access(need, &histories[s]);
}

static void record_read(const lifetime *lives, history *histories, tensor_id t, const operation *o, int32_t position) {
    if (t == NO_TENSOR)
        return;
    history *h = &histories[lives[t].storage];
    h->accessed[o->stream] = position;
    if (is_collective(o->kind))
        h->lent[o->stream] = position;
}

static void record_write(const lifetime *lives, history *histories, tensor_id t, const operation *o,
                         int32_t position) {
    if (t == NO_TENSOR)
        return;
    history *h = &histories[lives[t].storage];
    h->accessed[o->stream] = h->written[o->stream] = position;
    if (o->kind == OPERATION_ALL_REDUCE) /* its second half: other ranks read the slice that this rank has summed */
        h->lent[o->stream] = position;
}

/* What is known behind a wait for operation `other` of stream s. */
static void learn(clock *known, const clock *at_start, int s, int32_t other) {
    later(known->done, at_start[other].done);
    later(known->released, at_start[other].released);
    known->done[s] = other > known->done[s] ? other : known->done[s];
}

/* A wait that another of the same operation implies goes. */
static void drop_implied(operation *o, const clock *at_start) {
    for (int s = 0; s < STREAM_COUNT; s++)
        for (int other = 0; other < STREAM_COUNT; other++)
            if (other != s && o->wait[s] != NO_OPERATION && o->wait[other] != NO_OPERATION &&
                at_start[o->wait[other]].done[s] >= o->wait[s])
                o->wait[s] = NO_OPERATION;
}

/* Turns needs into waits that are not known already, and learns from what is waited for. A release implies that the
 * collective is done. */
static void settle(operation *o, const clock *need, clock *known, const clock *at_start) {
    for (int s = 0; s < STREAM_COUNT; s++) {
        const int32_t done = (int)o->stream == s ? need->issued_on : need->done[s];
        o->wait[s] = done > known->done[s] ? done : NO_OPERATION;
        o->release[s] = NO_OPERATION;
    }
    drop_implied(o, at_start);
    for (int s = 0; s < STREAM_COUNT; s++)
        if (o->wait[s] != NO_OPERATION)
            learn(known, at_start, s, o->wait[s]);
    for (int s = 0; s < STREAM_COUNT; s++) {
        if (need->released[s] <= known->released[s])
            continue;
        o->release[s] = known->released[s] = need->released[s];
        learn(known, at_start, s, o->release[s]);
        if (o->wait[s] <= o->release[s])
            o->wait[s] = NO_OPERATION;
    }
}

void waits_derive(program *p) {
    lifetime *lives = lifetimes_of(p);
    history *histories = memory_allocate((size_t)p->tensor_count, sizeof *histories);
    clock *at_start = memory_allocate((size_t)p->operation_count, sizeof *at_start);
    occupancy *bytes = occupancy_create(p, lives);
    clock known[STREAM_COUNT];
    for (int s = 0; s < STREAM_COUNT; s++) {
        clear(known[s].done);
        clear(known[s].released);
    }
    for (tensor_id t = 0; t < p->tensor_count; t++) {
        clear(histories[t].written);
        clear(histories[t].accessed);
        clear(histories[t].lent);
    }
    for (int32_t i = 0; i < p->operation_count; i++) {
        operation *o = &p->operations[i];
        clock need = {.issued_on = NO_OPERATION};
        clear(need.done);
        clear(need.released);
        for (int k = 0; k < OPERATION_INPUTS; k++)
            read_needs(o, lives, histories, o->in[k], &need);
        for (int k = 0; k < OPERATION_OUTPUTS; k++)
            write_needs(p, lives, histories, bytes, o->out[k], i, &need);
        write_needs(p, lives, histories, bytes, o->workspace, i, &need);
        settle(o, &need, &known[o->stream], at_start);
        at_start[i] = known[o->stream];
        at_start[i].done[o->stream] = i; /* whoever waits for i knows that its stream got this far */
        for (int k = 0; k < OPERATION_INPUTS; k++)
            record_read(lives, histories, o->in[k], o, i);
        for (int k = 0; k < OPERATION_OUTPUTS; k++)
            record_write(lives, histories, o->out[k], o, i);
        record_write(lives, histories, o->workspace, o, i);
    }
    occupancy_destroy(bytes);
    free(at_start);
    free(histories);
    free(lives);
}

int32_t waits_count(const program *p) {
    int32_t count = 0;
    for (int32_t i = 0; i < p->operation_count; i++)
        for (int s = 0; s < STREAM_COUNT; s++)
            count += (p->operations[i].wait[s] != NO_OPERATION) + (p->operations[i].release[s] != NO_OPERATION);
    return count;
}
