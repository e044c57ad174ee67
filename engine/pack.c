#include "engine/pack.h"

#include "engine/checked.h"
#include "engine/first_fit.h"
#include "engine/rng.h"

#include <stdlib.h>
#include <string.h>

/* Repairs of the first order and, by turns, of random ones: some programs want many orders, others many repairs. */
enum { REPAIRS = 20, REPAIRS_FEW = 4, REPAIRS_MANY = 12 };

/* First fits in all: so many that about BLOCKS_PLACED blocks are placed, within limits. The goal is a 400th above the
 * bound, at the last fit a 200th. */
enum { BLOCKS_PLACED = 2000000, FITS_LEAST = 20, FITS_MOST = 1500 };

/* A packing under way. */
typedef struct packer {
    block *blocks;
    int32_t count;
    int64_t bound;
    first_fit *space;
    int32_t *order, *scratch; /* block numbers */
    bool high[PACK_CLASSES];  /* classes that are packed downwards from the bound */
    int64_t best, *addresses; /* the lowest peak so far, and its addresses */
    int32_t fits, fits_most;  /* done, and allowed */
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

typedef enum inner_order { BY_SIZE, BY_LIFE, BY_START, INNER_ORDER_COUNT } inner_order;

/* How the blocks of a class are placed: before or after other classes, and which of them first. */
typedef struct class_order {
    uint32_t rank;
    inner_order inner; /* largest, longest or earliest first */
} class_order;

/* Keys in ascending order; the block's number makes sure that every sort has one outcome. */
typedef struct sort_key {
    int64_t keys[3];
    int32_t number;
} sort_key;

static int compare_keys(const void *left, const void *right) {
    const sort_key *a = left, *b = right;
    for (int i = 0; i < 3; i++)
        if (a->keys[i] != b->keys[i])
            return a->keys[i] < b->keys[i] ? -1 : 1;
    return (a->number > b->number) - (a->number < b->number);
}

static void sort_blocks(packer *k, const class_order *classes) {
    sort_key *keys = memory_allocate((size_t)k->count, sizeof *keys);
    for (int32_t i = 0; i < k->count; i++) {
        const block *b = &k->blocks[i];
        const class_order *class = &classes[b->class];
        const int64_t size = -b->bytes, life = b->first - b->last, start = b->first;
        const int64_t by[INNER_ORDER_COUNT][2] = {{size, life}, {life, size}, {start, size}};
        keys[i] = (sort_key){{class->rank, by[class->inner][0], by[class->inner][1]}, i};
    }
    qsort(keys, (size_t)k->count, sizeof *keys, compare_keys);
    for (int32_t i = 0; i < k->count; i++)
        k->order[i] = keys[i].number;
    free(keys);
}

static void sort_at_random(packer *k, uint64_t attempt) {
    class_order classes[PACK_CLASSES];
    for (uint64_t c = 0; c < PACK_CLASSES; c++) {
        uint32_t words[4];
        rng_words(attempt, 0, c, words);
        classes[c] = (class_order){words[0], (inner_order)(words[1] % INNER_ORDER_COUNT)};
        k->high[c] = attempt % 2 == 1 && words[2] % 2 == 1;
    }
    sort_blocks(k, classes);
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
    if (k->best == INT64_MAX)
        return false;
    const double goal = 1.0 / 400 + (1.0 / 200 - 1.0 / 400) * k->fits / k->fits_most;
    return k->fits >= k->fits_most || (double)(k->best - k->bound) <= goal * (double)k->bound;
}

static int64_t place_block(packer *k, const block *b) {
    return k->high[b->class] ? first_fit_high(k->space, b->first, b->last, b->bytes, k->bound)
                             : first_fit_low(k->space, b->first, b->last, b->bytes);
}

static void fit(packer *k) {
    int64_t peak = 0;
    first_fit_clear(k->space);
    for (int32_t i = 0; i < k->count; i++) {
        block *b = &k->blocks[k->order[i]];
        b->address = place_block(k, b);
        peak = maximum(peak, b->address + b->bytes);
    }
    k->fits++;
    if (peak >= k->best)
        return;
    k->best = peak;
    for (int32_t i = 0; i < k->count; i++)
        k->addresses[i] = k->blocks[i].address;
}

static void fit_and_repair(packer *k, int repairs) {
    fit(k);
    for (int repair = 0; repair < repairs && !is_enough(k); repair++) {
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
                .fits_most = (int32_t)minimum(maximum(BLOCKS_PLACED / count, FITS_LEAST), FITS_MOST)};
    sort_blocks(&k, (class_order[PACK_CLASSES]){{0, BY_SIZE}});
    fit_and_repair(&k, REPAIRS);
    for (uint64_t attempt = 0; !is_enough(&k); attempt++) {
        sort_at_random(&k, attempt);
        fit_and_repair(&k, attempt % 4 < 2 ? REPAIRS_FEW : REPAIRS_MANY);
    }
    for (int32_t i = 0; i < count; i++)
        blocks[i].address = k.addresses[i];
    free(k.order);
    free(k.scratch);
    free(k.addresses);
    first_fit_destroy(k.space);
    return k.best;
}
