#include "engine/occupancy.h"

#include "engine/checked.h"

#include <stdlib.h>

enum { MIXED = -2 }; /* a node whose bytes several hold; NO_TENSOR: nobody */

/* The addresses where storages begin or end cut the arena into slots. A binary tree over the slots tells who holds
 * them: a node that one storage holds altogether says so, and what its children say is then out of date. */
struct occupancy {
    const program *p;
    const lifetime *lives;
    int64_t *edges; /* ascending, all different; slot i is edges[i] .. edges[i + 1] */
    int32_t edge_count;
    tensor_id *holder; /* [4 x slots]: node 1 is the root, the children of n are 2n and 2n + 1 */
    tensor_id *evicted;
    int32_t evicted_count, evicted_capacity;
};

static int compare_edges(const void *left, const void *right) {
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static void find_edges(occupancy *o) {
    o->edges = memory_allocate(2 * (size_t)o->p->tensor_count, sizeof *o->edges);
    for (tensor_id t = 0; t < o->p->tensor_count; t++) {
        if (o->lives[t].storage != t)
            continue;
        o->edges[o->edge_count++] = o->p->tensors[t].address;
        o->edges[o->edge_count++] = o->p->tensors[t].address + o->lives[t].bytes;
    }
    qsort(o->edges, (size_t)o->edge_count, sizeof *o->edges, compare_edges);
    int32_t kept = 0;
    for (int32_t i = 0; i < o->edge_count; i++)
        if (kept == 0 || o->edges[i] != o->edges[kept - 1])
            o->edges[kept++] = o->edges[i];
    o->edge_count = kept;
}

static int32_t slot_at(const occupancy *o, int64_t address) {
    const int64_t *found = bsearch(&address, o->edges, (size_t)o->edge_count, sizeof address, compare_edges);
    check(found != NULL, "no storage begins or ends at %lld", (long long)address);
    return (int32_t)(found - o->edges);
}

occupancy *occupancy_create(const program *p, const lifetime *lives) {
    occupancy *o = memory_allocate(1, sizeof *o);
    *o = (occupancy){.p = p, .lives = lives};
    find_edges(o);
    o->holder = memory_allocate(4 * (size_t)o->edge_count, sizeof *o->holder);
    for (int64_t node = 0; node < 4 * (int64_t)o->edge_count; node++)
        o->holder[node] = NO_TENSOR;
    return o;
}

void occupancy_destroy(occupancy *o) {
    free(o->edges);
    free(o->holder);
    free(o->evicted);
    free(o);
}

static void evict(occupancy *o, tensor_id holder) {
    if (holder == NO_TENSOR || (o->evicted_count > 0 && o->evicted[o->evicted_count - 1] == holder))
        return;
    if (o->evicted_count == o->evicted_capacity) {
        o->evicted_capacity = o->evicted_capacity > 0 ? 2 * o->evicted_capacity : 64;
        o->evicted = memory_grow(o->evicted, (size_t)o->evicted_capacity, sizeof *o->evicted);
    }
    o->evicted[o->evicted_count++] = holder;
}

/* Storage s takes the slots begin .. end that are among the node's, from .. to. */
static void take(occupancy *o, int64_t node, int32_t from, int32_t to, int32_t begin, int32_t end, tensor_id s) {
    if (end <= from || to <= begin)
        return;
    tensor_id *holder = &o->holder[node];
    const bool whole = begin <= from && to <= end;
    if (*holder != MIXED && whole)
        evict(o, *holder);
    if (*holder != MIXED && !whole)
        o->holder[2 * node] = o->holder[2 * node + 1] = *holder;
    if (*holder == MIXED || !whole) {
        const int32_t middle = from + (to - from) / 2;
        take(o, 2 * node, from, middle, begin, end, s);
        take(o, 2 * node + 1, middle, to, begin, end, s);
    }
    *holder = whole ? s : MIXED;
}

const tensor_id *occupancy_take(occupancy *o, tensor_id s, int32_t *count) {
    const int64_t begin = o->p->tensors[s].address;
    o->evicted_count = 0;
    take(o, 1, 0, o->edge_count - 1, slot_at(o, begin), slot_at(o, begin + o->lives[s].bytes), s);
    *count = o->evicted_count;
    return o->evicted;
}
