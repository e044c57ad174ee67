#include "engine/order.h"

#include "engine/checked.h"
#include "engine/rng.h"

#include <stdlib.h>

typedef struct picker {
    const program *p;
    bool *done;
    int32_t next[STREAM_COUNT]; /* operation that each stream comes to next; operation_count: none */
    int32_t next_collective;
} picker;

static bool waited_for(const picker *k, int32_t operation) {
    return operation == NO_OPERATION || k->done[operation];
}

static bool ready(const picker *k, int32_t i) {
    if (i == k->p->operation_count)
        return false;
    const operation *o = &k->p->operations[i];
    for (int s = 0; s < STREAM_COUNT; s++)
        if (!waited_for(k, o->wait[s]) || !waited_for(k, o->release[s]))
            return false;
    return !operation_is_collective(o->kind) || i == k->next_collective;
}

static int32_t find(const program *p, int32_t from, stream s) {
    while (from < p->operation_count && p->operations[from].stream != s)
        from++;
    return from;
}

static int32_t find_collective(const program *p, int32_t from) {
    while (from < p->operation_count && !operation_is_collective(p->operations[from].kind))
        from++;
    return from;
}

/* A ready stream, each with the same chance. */
static int pick_stream(const picker *k, uint64_t seed, int32_t position) {
    int candidates[STREAM_COUNT], count = 0;
    for (int s = 0; s < STREAM_COUNT; s++)
        if (ready(k, k->next[s]))
            candidates[count++] = s;
    check(count > 0, "no operation can start behind %d of them", position);
    uint32_t words[4];
    rng_words(seed, 0, (uint64_t)position, words);
    return candidates[words[0] % (uint32_t)count];
}

int32_t *order_pick(const program *p, uint64_t seed) {
    int32_t *order = memory_allocate((size_t)p->operation_count, sizeof *order);
    picker k = {.p = p, .done = memory_allocate((size_t)p->operation_count, sizeof *k.done)};
    for (int s = 0; s < STREAM_COUNT; s++)
        k.next[s] = find(p, 0, (stream)s);
    k.next_collective = find_collective(p, 0);
    for (int32_t position = 0; position < p->operation_count; position++) {
        const int s = pick_stream(&k, seed, position);
        const int32_t i = k.next[s];
        order[position] = i;
        k.done[i] = true;
        k.next[s] = find(p, i + 1, (stream)s);
        if (i == k.next_collective)
            k.next_collective = find_collective(p, i + 1);
    }
    free(k.done);
    return order;
}
