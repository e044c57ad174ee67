#include "engine/verify_bytes.h"

#include "engine/checked.h"

#include <stdlib.h>
#include <string.h>

/* Runs lie in a pool; `order` lists them by address, so that cutting and joining moves small numbers only. */
struct byte_map {
    byte_run *pool;
    int32_t *order, *unused;
    int32_t count, unused_count, pool_count, capacity;
};

byte_run byte_run_new(int64_t begin, int64_t end, tensor_id owner) {
    byte_run run = {.begin = begin, .end = end, .owner = owner, .last_write = NEVER};
    for (int s = 0; s < STREAM_COUNT; s++)
        run.written[s] = run.read[s] = run.lent[s] = NEVER;
    return run;
}

static void grow(byte_map *m) {
    m->capacity = m->capacity > 0 ? 2 * m->capacity : 256;
    m->pool = memory_grow(m->pool, (size_t)m->capacity, sizeof *m->pool);
    m->order = memory_grow(m->order, (size_t)m->capacity, sizeof *m->order);
    m->unused = memory_grow(m->unused, (size_t)m->capacity, sizeof *m->unused);
}

static void insert(byte_map *m, int32_t place, const byte_run *run) {
    const byte_run copy = *run; /* the pool may move */
    if (m->unused_count == 0 && m->pool_count == m->capacity)
        grow(m);
    const int32_t slot = m->unused_count > 0 ? m->unused[--m->unused_count] : m->pool_count++;
    memmove(m->order + place + 1, m->order + place, (size_t)(m->count - place) * sizeof *m->order);
    m->order[place] = slot;
    m->pool[slot] = copy;
    m->count++;
}

byte_map *byte_map_create(int64_t bytes) {
    byte_map *m = memory_allocate(1, sizeof *m);
    const byte_run all = byte_run_new(0, bytes, NO_TENSOR);
    insert(m, 0, &all);
    return m;
}

void byte_map_destroy(byte_map *m) {
    free(m->pool);
    free(m->order);
    free(m->unused);
    free(m);
}

byte_run *byte_map_run(byte_map *m, int32_t place) {
    return &m->pool[m->order[place]];
}

/* The place of the run that holds a byte; the number of runs for the end of the arena. */
static int32_t find(const byte_map *m, int64_t byte) {
    int32_t low = 0, high = m->count;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (m->pool[m->order[middle]].end <= byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void cut_at(byte_map *m, int64_t byte) {
    const int32_t place = find(m, byte);
    if (place == m->count || byte_map_run(m, place)->begin == byte)
        return;
    byte_run left = *byte_map_run(m, place);
    byte_map_run(m, place)->begin = left.end = byte;
    insert(m, place, &left);
}

int32_t byte_map_cut(byte_map *m, int64_t begin, int64_t end) {
    cut_at(m, begin);
    cut_at(m, end);
    return find(m, begin);
}

int32_t byte_map_end(const byte_map *m, int64_t end) {
    return find(m, end);
}

void byte_map_replace(byte_map *m, const byte_run *run) {
    const int32_t first = find(m, run->begin), behind = find(m, run->end);
    *byte_map_run(m, first) = *run;
    for (int32_t place = first + 1; place < behind; place++)
        m->unused[m->unused_count++] = m->order[place];
    memmove(m->order + first + 1, m->order + behind, (size_t)(m->count - behind) * sizeof *m->order);
    m->count -= behind - first - 1;
}
