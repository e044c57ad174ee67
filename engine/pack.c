#include "engine/pack.h"

#include "engine/checked.h"
#include "engine/first_fit.h"
#include "engine/rng.h"

#include <stdlib.h>
#include <string.h>

/* Repairs of one order; first fits in all: so many that about FITS blocks are placed, within limits. */
enum { REPAIRS = 20, FITS = 1000000, FITS_LEAST = 20, FITS_MOST = 400 };

/* A packing under way. */
typedef struct packer {
    block *blocks;
    int32_t count;
    int64_t bound;
    first_fit *space;
    int32_t *order, *scratch; /* block numbers */
    int64_t best, *addresses; /* the lowest peak so far, and its addresses */
    int32_t fits_left;
} packer;

int64_t pack_bound(const block *blocks, int32_t count, int32_t positions) {
    int64_t *change = memory_allocate((size_t)positions + 1, sizeof *change), live = 0, most = 0;
    for (int32_t i = 0; i < count; i++) {
        change[blocks[i].first] += blocks[i].bytes;
        change[blocks[i].last + 1] -= blocks[i].bytes;
    }
    for (int32_t i = 0; i < positions; i++) {
        live += change[i];
        most = maximum(most, live);
    }
    free(change);
    return most;
}

/* ---- orders ---- */

/* Blocks are sorted by up to four keys, ascending; the last is the block's number, so every sort has one outcome. */
typedef struct sort_key {
    int64_t keys[3];
    int32_t number;
} sort_key;

typedef enum inner_order { BY_SIZE, BY_LIFE, BY_START, INNER_ORDER_COUNT } inner_order;

static int compare_keys(const void *left, const void *right) {
    const sort_key *a = left, *b = right;
    for (int i = 0; i < 3; i++)
        if (a->keys[i] != b->keys[i])
            return a->keys[i] < b->keys[i] ? -1 : 1;
    return (a->number > b->number) - (a->number < b->number);
}

/* Classes in the order of their ranks, and inside a class largest, longest or earliest first. */
static void sort_blocks(packer *k, const uint32_t *class_rank, inner_order inner) {
    sort_key *keys = memory_allocate((size_t)k->count, sizeof *keys);
    for (int32_t i = 0; i < k->count; i++) {
        const block *b = &k->blocks[i];
        const int64_t size = -b->bytes, life = b->first - b->last, start = b->first;
        const int64_t by[INNER_ORDER_COUNT][2] = {{size, life}, {life, size}, {start, size}};
        keys[i] = (sort_key){{class_rank[b->class], by[inner][0], by[inner][1]}, i};
    }
    qsort(keys, (size_t)k->count, sizeof *keys, compare_keys);
    for (int32_t i = 0; i < k->count; i++)
        k->order[i] = keys[i].number;
    free(keys);
}

static void sort_at_random(packer *k, uint64_t attempt) {
    uint32_t words[4], rank[PACK_CLASSES];
    for (uint64_t class = 0; class < PACK_CLASSES; class++) {
        rng_words(attempt, 0, class, words);
        rank[class] = words[0];
    }
    rng_words(attempt, 1, 0, words);
    sort_blocks(k, rank, (inner_order)(words[0] % INNER_ORDER_COUNT));
}

static int64_t end_of(const packer *k, int32_t number) {
    return k->blocks[number].address + k->blocks[number].bytes;
}

/* What ends above the bound goes first; otherwise the order stays. */
static void move_high_first(packer *k) {
    int32_t at = 0;
    for (int high = 1; high >= 0; high--)
        for (int32_t i = 0; i < k->count; i++)
            if ((end_of(k, k->order[i]) > k->bound) == high)
                k->scratch[at++] = k->order[i];
    memcpy(k->order, k->scratch, (size_t)k->count * sizeof *k->order);
}

/* ---- tries ---- */

static bool is_enough(const packer *k) {
    return k->fits_left == 0 || (k->best != INT64_MAX && k->best <= k->bound + k->bound / 400);
}

static void fit(packer *k) {
    int64_t peak = 0;
    first_fit_clear(k->space);
    for (int32_t i = 0; i < k->count; i++) {
        block *b = &k->blocks[k->order[i]];
        b->address = first_fit_place(k->space, b->first, b->last, b->bytes);
        peak = maximum(peak, b->address + b->bytes);
    }
    k->fits_left--;
    if (peak >= k->best)
        return;
    k->best = peak;
    for (int32_t i = 0; i < k->count; i++)
        k->addresses[i] = k->blocks[i].address;
}

static void fit_and_repair(packer *k) {
    fit(k);
    for (int repair = 0; repair < REPAIRS && !is_enough(k); repair++) {
        move_high_first(k);
        fit(k);
    }
}

int64_t pack(block *blocks, int32_t count, int32_t positions) {
    if (count == 0)
        return 0;
    packer k = {.blocks = blocks,
                .count = count,
                .bound = pack_bound(blocks, count, positions),
                .space = first_fit_create(positions),
                .order = memory_allocate((size_t)count, sizeof *k.order),
                .scratch = memory_allocate((size_t)count, sizeof *k.scratch),
                .best = INT64_MAX,
                .addresses = memory_allocate((size_t)count, sizeof *k.addresses),
                .fits_left = (int32_t)minimum(maximum(FITS / count, FITS_LEAST), FITS_MOST)};
    sort_blocks(&k, (uint32_t[PACK_CLASSES]){0}, BY_SIZE);
    fit_and_repair(&k);
    for (uint64_t attempt = 0; !is_enough(&k); attempt++) {
        sort_at_random(&k, attempt);
        fit_and_repair(&k);
    }
    for (int32_t i = 0; i < count; i++)
        blocks[i].address = k.addresses[i];
    free(k.order);
    free(k.scratch);
    free(k.addresses);
    first_fit_destroy(k.space);
    return k.best;
}
