#include "engine/place.h"

#include "engine/checked.h"
#include "engine/lifetime.h"
#include "engine/rng.h"

#include <stdlib.h>
#include <string.h>

enum { REPAIRS = 20, SHUFFLES = 63, SHUFFLES_LARGE = 15, LARGE = 4000 };

/* One storage to place. */
typedef struct block {
    tensor_id storage;
    int32_t first, last;
    int64_t bytes; /* aligned */
    int64_t address;
    uint32_t rank; /* position of its class in a shuffled order */
} block;

static bool overlap_in_time(const block *a, const block *b) {
    return a->first <= b->last && b->first <= a->last;
}

/* Places blocks in the given order, each at the lowest offset that is free for its lifetime. Returns the peak. */
static int64_t first_fit(block **order, int32_t count, block **by_address) {
    int64_t peak = 0;
    for (int32_t i = 0; i < count; i++) {
        block *b = order[i];
        int64_t at = 0;
        for (int32_t k = 0; k < i; k++) {
            const block *other = by_address[k];
            if (!overlap_in_time(b, other))
                continue;
            if (other->address >= at + b->bytes)
                break;
            at = maximum(at, other->address + other->bytes);
        }
        b->address = at;
        peak = maximum(peak, at + b->bytes);
        int32_t k = i;
        for (; k > 0 && by_address[k - 1]->address > at; k--)
            by_address[k] = by_address[k - 1];
        by_address[k] = b;
    }
    return peak;
}

static int64_t largest_live(const block *blocks, int32_t count, int32_t operations) {
    int64_t *change = memory_allocate((size_t)operations + 1, sizeof *change);
    for (int32_t i = 0; i < count; i++) {
        change[blocks[i].first] += blocks[i].bytes;
        change[blocks[i].last + 1] -= blocks[i].bytes;
    }
    int64_t live = 0, largest = 0;
    for (int32_t i = 0; i < operations; i++) {
        live += change[i];
        largest = maximum(largest, live);
    }
    free(change);
    return largest;
}

static int compare(int64_t a, int64_t b) {
    return (a > b) - (a < b);
}

/* Largest first, then longest life, then earliest start; storages are unique, so every sort has one outcome. */
static int by_size(const void *left, const void *right) {
    const block *a = *(block *const *)left, *b = *(block *const *)right;
    int c = compare(b->bytes, a->bytes);
    c = c != 0 ? c : compare(b->last - b->first, a->last - a->first);
    c = c != 0 ? c : compare(a->first, b->first);
    return c != 0 ? c : compare(a->storage, b->storage);
}

static int by_rank(const void *left, const void *right) {
    const block *a = *(block *const *)left, *b = *(block *const *)right;
    int c = compare(a->rank, b->rank);
    return c != 0 ? c : by_size(left, right);
}

/* Keeps the better of two placements. */
static void keep_best(const block *blocks, int32_t count, int64_t peak, int64_t *best, int64_t *addresses) {
    if (peak >= *best)
        return;
    *best = peak;
    for (int32_t i = 0; i < count; i++)
        addresses[i] = blocks[i].address;
}

/* Blocks that end above the bound go first, the others keep their order. */
static void move_high_first(block **order, int32_t count, int64_t bound, block **scratch) {
    int32_t high = 0, low = 0;
    for (int32_t i = 0; i < count; i++)
        if (order[i]->address + order[i]->bytes > bound)
            scratch[high++] = order[i];
    for (int32_t i = 0; i < count; i++)
        if (order[i]->address + order[i]->bytes <= bound)
            scratch[high + low++] = order[i];
    memcpy(order, scratch, (size_t)count * sizeof *order);
}

static bool good_enough(int64_t peak, int64_t bound) {
    return peak <= bound + bound / 400;
}

/* From one order: first fit and repairs. */
static void pack_from(block *blocks, block **order, int32_t count, int64_t bound, int64_t *best, int64_t *addresses,
                      block **scratch) {
    for (int repair = 0; repair <= REPAIRS && !good_enough(*best, bound); repair++) {
        if (repair > 0)
            move_high_first(order, count, bound, scratch);
        keep_best(blocks, count, first_fit(order, count, scratch), best, addresses);
    }
}

/* Gives every block its class's place in a random order of (role, large or small). */
static void shuffle_classes(const program *p, block *blocks, int32_t count, uint64_t attempt) {
    for (int32_t i = 0; i < count; i++) {
        uint32_t words[4], class = (uint32_t)p->tensors[blocks[i].storage].role;
        rng_words(attempt, class, (uint64_t)p->tensors[blocks[i].storage].unit == 0, words);
        blocks[i].rank = words[0];
    }
}

/* Packs the blocks; addresses[i] is block i's. Returns the peak. */
static int64_t pack(const program *p, block *blocks, int32_t count, int64_t *addresses) {
    block **order = memory_allocate((size_t)count, sizeof(block *));
    block **scratch = memory_allocate((size_t)count, sizeof(block *));
    const int64_t bound = largest_live(blocks, count, p->operation_count);
    int64_t best = INT64_MAX;
    for (int32_t i = 0; i < count; i++)
        order[i] = &blocks[i];
    if (count > 0)
        qsort(order, (size_t)count, sizeof(block *), by_size);
    pack_from(blocks, order, count, bound, &best, addresses, scratch);
    const int shuffles = count > LARGE ? SHUFFLES_LARGE : SHUFFLES;
    for (int attempt = 0; attempt < shuffles && !good_enough(best, bound); attempt++) {
        shuffle_classes(p, blocks, count, (uint64_t)attempt);
        qsort(order, (size_t)count, sizeof(block *), by_rank);
        pack_from(blocks, order, count, bound, &best, addresses, scratch);
    }
    free(order);
    free(scratch);
    return count > 0 ? best : 0;
}

/* The storages that come and go within a step; *count of them, freed by the caller. */
static block *collect(const program *p, const lifetime *lives, int32_t *count) {
    block *blocks = memory_allocate((size_t)p->tensor_count, sizeof *blocks);
    *count = 0;
    for (tensor_id t = 0; t < p->tensor_count; t++)
        if (lives[t].storage == t && !p->tensors[t].persistent && lives[t].first != NO_OPERATION)
            blocks[(*count)++] = (block){.storage = t,
                                         .first = lives[t].first,
                                         .last = lives[t].last,
                                         .bytes = round_up(lives[t].bytes, PLACE_ALIGNMENT)};
    return blocks;
}

static int64_t place_persistent(program *p) {
    int64_t at = 0;
    for (tensor_id t = 0; t < p->tensor_count; t++) {
        tensor *x = &p->tensors[t];
        if (!x->persistent || x->base != NO_TENSOR)
            continue;
        x->address = at;
        at += round_up(x->bytes, PLACE_ALIGNMENT);
    }
    return at;
}

void place(program *p) {
    lifetime *lives = lifetimes_of(p);
    lifetimes_hold_reductions(p, lives);
    int32_t count = 0;
    block *blocks = collect(p, lives, &count);
    int64_t *addresses = memory_allocate((size_t)count, sizeof *addresses);
    p->persistent_bytes = place_persistent(p);
    p->arena_bytes = p->persistent_bytes + pack(p, blocks, count, addresses);
    for (int32_t i = 0; i < count; i++)
        p->tensors[blocks[i].storage].address = p->persistent_bytes + addresses[i];
    for (tensor_id t = 0; t < p->tensor_count; t++) {
        tensor *x = &p->tensors[t];
        x->address = p->tensors[lives[t].storage].address + (x->base == NO_TENSOR ? 0 : x->offset);
    }
    free(addresses);
    free(blocks);
    free(lives);
}

int64_t place_bound(const program *p) {
    lifetime *lives = lifetimes_of(p);
    int32_t count = 0;
    block *blocks = collect(p, lives, &count);
    int64_t bound = p->persistent_bytes + largest_live(blocks, count, p->operation_count);
    free(blocks);
    free(lives);
    return bound;
}

void place_workspaces(program *p, device *d) {
    for (int32_t i = 0; i < p->operation_count; i++) {
        operation *o = &p->operations[i];
        if (o->stream == STREAM_GATHER || o->stream == STREAM_REDUCE || o->stream == STREAM_COPY)
            continue;
        launch l = program_launch(p, o, NULL);
        int64_t bytes = (int64_t)d->functions->workspace(d, &l);
        if (bytes > 0)
            o->workspace = program_tensor(p, "workspace", ROLE_WORKSPACE, DTYPE_F32, 1,
                                          (int64_t[]){divide_up(bytes, dtype_bytes(DTYPE_F32))});
    }
}
