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

static void later(int32_t *into, const int32_t *from) {
    for (int s = 0; s < STREAM_COUNT; s++)
        if (from[s] > into[s])
            into[s] = from[s];
}

static void clear(clock *c) {
    for (int s = 0; s < STREAM_COUNT; s++)
        c->done[s] = c->released[s] = NO_OPERATION;
    c->issued_on = NO_OPERATION;
}

/* A derivation under way: the list is walked once, and what each operation does is noted behind it. */
typedef struct deriver {
    program *p;
    lifetime *lives;
    occupancy *bytes;
    history *histories;        /* [tensors]: of storages */
    clock *at_start;           /* [operations]: what is known when it starts */
    clock known[STREAM_COUNT]; /* what the next operation of a stream knows from the one before it */
} deriver;

/* ---- what an operation must come after ---- */

/* Everything that a writer of these bytes must come after. */
static void after_all_access(clock *need, const history *h) {
    later(need->done, h->accessed);
    later(need->released, h->lent);
}

/* The first access to a storage comes after all that happened to those whose bytes it takes. An operation that writes
 * two views of it takes them once. */
static void after_earlier_occupants(deriver *d, tensor_id s, clock *need) {
    int32_t count;
    const tensor_id *evicted = occupancy_take(d->bytes, s, &count);
    for (int32_t k = 0; k < count; k++) {
        if (evicted[k] == s)
            continue;
        check(d->lives[evicted[k]].last < d->lives[s].first, "tensors %d and %d share bytes while both live",
              evicted[k], s);
        after_all_access(need, &d->histories[evicted[k]]);
    }
}

/* A stream executes in order, but a collective is completed late, by whoever waits for it: one that reads what an
 * earlier one of its stream writes must see that one completed before it is issued. */
static void read_needs(const deriver *d, const operation *o, tensor_id t, clock *need) {
    if (t == NO_TENSOR)
        return;
    const history *h = &d->histories[d->lives[t].storage];
    later(need->done, h->written);
    if (operation_is_collective(o->kind) && h->written[o->stream] > need->issued_on)
        need->issued_on = h->written[o->stream];
}

static void write_needs(deriver *d, int32_t i, tensor_id t, clock *need) {
    if (t == NO_TENSOR)
        return;
    const tensor_id s = d->lives[t].storage;
    if (d->lives[s].first == i && !d->p->tensors[s].persistent)
        after_earlier_occupants(d, s, need);
    after_all_access(need, &d->histories[s]);
}

static clock needs_of(deriver *d, int32_t i) {
    const operation *o = &d->p->operations[i];
    clock need;
    clear(&need);
    for (int k = 0; k < OPERATION_INPUTS; k++)
        read_needs(d, o, o->in[k], &need);
    for (int k = 0; k < OPERATION_OUTPUTS; k++)
        write_needs(d, i, o->out[k], &need);
    write_needs(d, i, o->workspace, &need);
    return need;
}

/* ---- what happens to storages ---- */

static void record_read(deriver *d, int32_t i, tensor_id t) {
    if (t == NO_TENSOR)
        return;
    const operation *o = &d->p->operations[i];
    history *h = &d->histories[d->lives[t].storage];
    h->accessed[o->stream] = i;
    if (operation_is_collective(o->kind))
        h->lent[o->stream] = i;
}

static void record_write(deriver *d, int32_t i, tensor_id t) {
    if (t == NO_TENSOR)
        return;
    const operation *o = &d->p->operations[i];
    history *h = &d->histories[d->lives[t].storage];
    h->accessed[o->stream] = h->written[o->stream] = i;
    if (o->kind == OPERATION_ALL_REDUCE) /* its second half: other ranks read the slice that this rank has summed */
        h->lent[o->stream] = i;
}

static void record(deriver *d, int32_t i) {
    const operation *o = &d->p->operations[i];
    for (int k = 0; k < OPERATION_INPUTS; k++)
        record_read(d, i, o->in[k]);
    for (int k = 0; k < OPERATION_OUTPUTS; k++)
        record_write(d, i, o->out[k]);
    record_write(d, i, o->workspace);
}

/* ---- from needs to waits ---- */

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

static void derive(deriver *d, int32_t i) {
    operation *o = &d->p->operations[i];
    const clock need = needs_of(d, i);
    settle(o, &need, &d->known[o->stream], d->at_start);
    d->at_start[i] = d->known[o->stream];
    d->at_start[i].done[o->stream] = i; /* whoever waits for i knows that its stream got this far */
    record(d, i);
}

static void clear_all(deriver *d) {
    for (int s = 0; s < STREAM_COUNT; s++)
        clear(&d->known[s]);
    for (tensor_id t = 0; t < d->p->tensor_count; t++)
        for (int s = 0; s < STREAM_COUNT; s++)
            d->histories[t].written[s] = d->histories[t].accessed[s] = d->histories[t].lent[s] = NO_OPERATION;
}

void waits_derive(program *p) {
    deriver d = {.p = p,
                 .lives = lifetimes_of(p),
                 .histories = memory_allocate((size_t)p->tensor_count, sizeof *d.histories),
                 .at_start = memory_allocate((size_t)p->operation_count, sizeof *d.at_start)};
    d.bytes = occupancy_create(p, d.lives);
    clear_all(&d);
    for (int32_t i = 0; i < p->operation_count; i++)
        derive(&d, i);
    occupancy_destroy(d.bytes);
    free(d.at_start);
    free(d.histories);
    free(d.lives);
}

int32_t waits_count(const program *p) {
    int32_t count = 0;
    for (int32_t i = 0; i < p->operation_count; i++)
        for (int s = 0; s < STREAM_COUNT; s++)
            count += (p->operations[i].wait[s] != NO_OPERATION) + (p->operations[i].release[s] != NO_OPERATION);
    return count;
}
