#include "engine/first_fit.h"

#include "engine/checked.h"

#include <stdlib.h>
#include <string.h>

typedef struct range {
    int64_t begin, end; /* bytes */
} range;

/* Ranges in ascending order that do not touch each other. */
typedef struct range_set {
    range *items;
    int32_t count, capacity;
} range_set;

/* A binary tree over list positions. A life is the union of a few nodes' spans, at most two in each level: its
 * parts. */
typedef struct node {
    range_set covering; /* bytes of blocks that have this node as a part: in use during its whole span */
    range_set touching; /* bytes in use at some position of its span by blocks that have it, or one below, as a part */
} node;

enum { LEVELS = 32 };

struct first_fit {
    node *nodes; /* 1 is the root, the children of n are 2n and 2n + 1; position i is node leaves + i */
    int32_t leaves;
};

/* ---- sets ---- */

/* The first range from `start` on that ends behind `byte`; count when there is none. Looks near `start` first. */
static int32_t first_behind(const range_set *s, int32_t start, int64_t byte) {
    int32_t low = start, step = 1;
    while (low + step <= s->count && s->items[low + step - 1].end <= byte) {
        low += step;
        step *= 2;
    }
    int32_t high = (int32_t)minimum((int64_t)low + step - 1, s->count);
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (s->items[middle].end <= byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Adds a range, joined with those that it meets. */
static void add(range_set *s, range r) {
    const int32_t from = first_behind(s, 0, r.begin - 1);
    int32_t behind = from;
    for (; behind < s->count && s->items[behind].begin <= r.end; behind++) {
        r.begin = minimum(r.begin, s->items[behind].begin);
        r.end = maximum(r.end, s->items[behind].end);
    }
    if (s->count == s->capacity && behind == from) {
        s->capacity = s->capacity > 0 ? 2 * s->capacity : 2;
        s->items = memory_grow(s->items, (size_t)s->capacity, sizeof *s->items);
    }
    if (behind != from + 1)
        memmove(s->items + from + 1, s->items + behind, (size_t)(s->count - behind) * sizeof *s->items);
    s->count += 1 - (behind - from);
    s->items[from] = r;
}

/* The last range before `start` that begins before `byte`; -1 when there is none. */
static int32_t last_before(const range_set *s, int32_t start, int64_t byte) {
    int32_t low = 0, high = start;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (s->items[middle].begin < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low - 1;
}

/* ---- search ---- */

/* The parts of a life, and the sets that hold all that is in its way, with how far each has been looked through. */
typedef struct search {
    int64_t parts[2 * LEVELS];
    const range_set *sets[4 * LEVELS];
    int32_t at[4 * LEVELS];
    int32_t part_count, count;
} search;

/* The lowest offset that is free in all sets: each in turn pushes it up until none objects. */
static int64_t lowest_free(search *s, int64_t bytes) {
    int64_t offset = 0;
    for (int32_t i = 0; i < s->count; i++)
        s->at[i] = 0;
    for (int32_t agreed = 0, i = 0; agreed < s->count; i = (i + 1) % s->count) {
        const range_set *set = s->sets[i];
        const int64_t before = offset;
        s->at[i] = first_behind(set, s->at[i], offset);
        while (s->at[i] < set->count && set->items[s->at[i]].begin < offset + bytes)
            offset = set->items[s->at[i]++].end;
        agreed = offset == before ? agreed + 1 : 1;
    }
    return offset;
}

/* The highest offset with room below limit, found likewise; negative when there is none. */
static int64_t highest_free(search *s, int64_t bytes, int64_t limit) {
    int64_t offset = limit - bytes;
    for (int32_t i = 0; i < s->count; i++)
        s->at[i] = s->sets[i]->count;
    for (int32_t agreed = 0, i = 0; agreed < s->count && offset >= 0; i = (i + 1) % s->count) {
        const range_set *set = s->sets[i];
        const int64_t before = offset;
        int32_t at = last_before(set, s->at[i], offset + bytes);
        while (at >= 0 && set->items[at].end > offset)
            offset = set->items[at--].begin - bytes;
        s->at[i] = at + 1;
        agreed = offset == before ? agreed + 1 : 1;
    }
    return offset;
}

/* ---- tree ---- */

first_fit *first_fit_create(int32_t positions) {
    first_fit *f = memory_allocate(1, sizeof *f);
    f->leaves = 1;
    while (f->leaves < positions)
        f->leaves *= 2;
    f->nodes = memory_allocate(2 * (size_t)f->leaves, sizeof *f->nodes);
    return f;
}

void first_fit_destroy(first_fit *f) {
    for (int64_t n = 0; n < 2 * (int64_t)f->leaves; n++) {
        free(f->nodes[n].covering.items);
        free(f->nodes[n].touching.items);
    }
    free(f->nodes);
    free(f);
}

void first_fit_clear(first_fit *f) {
    for (int64_t n = 0; n < 2 * (int64_t)f->leaves; n++)
        f->nodes[n].covering.count = f->nodes[n].touching.count = 0;
}

static void find_parts(const first_fit *f, int32_t first, int32_t last, search *s) {
    int64_t low = (int64_t)f->leaves + first, high = (int64_t)f->leaves + last + 1;
    for (; low < high; low /= 2, high /= 2) {
        if (low % 2 == 1)
            s->parts[s->part_count++] = low++;
        if (high % 2 == 1)
            s->parts[s->part_count++] = --high;
    }
}

static void look_in(search *s, const range_set *set) {
    if (set->count > 0)
        s->sets[s->count++] = set;
}

/* Whatever lies above a part lies above the life's first or last position. */
static search search_of(const first_fit *f, int32_t first, int32_t last) {
    search s = {.count = 0};
    find_parts(f, first, last, &s);
    for (int32_t i = 0; i < s.part_count; i++)
        look_in(&s, &f->nodes[s.parts[i]].touching);
    for (int64_t n = (int64_t)f->leaves + first; n > 0; n /= 2)
        look_in(&s, &f->nodes[n].covering);
    for (int64_t n = (int64_t)f->leaves + last; n > 0; n /= 2)
        look_in(&s, &f->nodes[n].covering);
    return s;
}

static void occupy(first_fit *f, int32_t first, int32_t last, const search *s, range taken) {
    for (int32_t i = 0; i < s->part_count; i++) {
        add(&f->nodes[s->parts[i]].covering, taken);
        add(&f->nodes[s->parts[i]].touching, taken);
    }
    for (int64_t n = (int64_t)f->leaves + first; n > 0; n /= 2)
        add(&f->nodes[n].touching, taken);
    for (int64_t n = (int64_t)f->leaves + last; n > 0; n /= 2)
        add(&f->nodes[n].touching, taken);
}

int64_t first_fit_low(first_fit *f, int32_t first, int32_t last, int64_t bytes) {
    search s = search_of(f, first, last);
    const int64_t offset = lowest_free(&s, bytes);
    occupy(f, first, last, &s, (range){offset, offset + bytes});
    return offset;
}

int64_t first_fit_high(first_fit *f, int32_t first, int32_t last, int64_t bytes, int64_t limit) {
    search s = search_of(f, first, last);
    int64_t offset = highest_free(&s, bytes, limit);
    if (offset < 0)
        offset = lowest_free(&s, bytes);
    occupy(f, first, last, &s, (range){offset, offset + bytes});
    return offset;
}
