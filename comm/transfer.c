#include "comm/transfer.h"

#include "engine/checked.h"

#include <string.h>

enum {
    TILE_BYTES = 2 << 20, /* one thread's piece, and what is resident of a peer at most per thread */
    BLOCK_ELEMENTS = 2048 /* sums of one block stay in the first-level cache while all parts are added */
};

typedef struct job {
    const window *window;
    const part *parts;
    int count, odd;
    int64_t tiles_per_part;
    float *out;
    bool accumulate;
} job;

static void drop(const job *j, const part *p, int64_t from, int64_t bytes) {
    if (p->rank != NO_RANK)
        window_drop(j->window, p->rank, p->offset + from, bytes);
}

static void copy_tile(void *context, int64_t tile, int thread) {
    (void)thread;
    const job *j = context;
    const part *p = &j->parts[tile / j->tiles_per_part];
    int64_t from = tile % j->tiles_per_part * TILE_BYTES, bytes = minimum(TILE_BYTES, p->bytes - from);
    if (bytes <= 0)
        return;
    memcpy((char *)p->to + from, (const char *)p->from + from, (size_t)bytes);
    drop(j, p, from, bytes);
}

void transfer_copy(pool *p, const window *v, const part *parts, int count) {
    int64_t largest = 0;
    for (int k = 0; k < count; k++)
        largest = maximum(largest, parts[k].bytes);
    job j = {.window = v, .parts = parts, .count = count, .tiles_per_part = divide_up(largest, TILE_BYTES)};
    if (j.tiles_per_part > 0)
        pool_run(p, count * j.tiles_per_part, copy_tile, &j);
}

static void add(float *sum, const float *more, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        sum[i] += more[i];
}

/* sum[] = elements first .. first + count of `members` parts from `member` on. As deep as the group has factors of two,
 * with a block on the stack for each. */
static void sum_members(const job *j, int member, int members, int64_t first, int64_t count, float *sum) {
    if (members > j->odd) {
        float right[BLOCK_ELEMENTS];
        sum_members(j, member, members / 2, first, count, sum);
        sum_members(j, member + members / 2, members / 2, first, count, right);
        add(sum, right, count);
        return;
    }
    memcpy(sum, (const float *)j->parts[member].from + first, (size_t)count * sizeof *sum);
    for (int k = 1; k < members; k++)
        add(sum, (const float *)j->parts[member + k].from + first, count);
}

static void sum_block(const job *j, int64_t first, int64_t count) {
    float sum[BLOCK_ELEMENTS];
    sum_members(j, 0, j->count, first, count, sum);
    float *out = j->out + first;
    if (!j->accumulate) {
        memcpy(out, sum, (size_t)count * sizeof *sum);
        return;
    }
    add(out, sum, count);
}

static void sum_tile(void *context, int64_t tile, int thread) {
    (void)thread;
    const job *j = context;
    enum { TILE_ELEMENTS = TILE_BYTES / sizeof(float) };
    int64_t first = tile * TILE_ELEMENTS, total = j->parts[0].bytes / (int64_t)sizeof(float);
    int64_t count = minimum(TILE_ELEMENTS, total - first);
    for (int64_t i = 0; i < count; i += BLOCK_ELEMENTS)
        sum_block(j, first + i, minimum(BLOCK_ELEMENTS, count - i));
    for (int k = 0; k < j->count; k++)
        drop(j, &j->parts[k], first * (int64_t)sizeof(float), count * (int64_t)sizeof(float));
}

void transfer_sum(pool *p, const window *v, const part *parts, int count, int odd, float *out, bool accumulate) {
    job j = {.window = v, .parts = parts, .count = count, .odd = odd, .out = out, .accumulate = accumulate};
    int64_t tiles = divide_up(parts[0].bytes, TILE_BYTES);
    if (tiles > 0)
        pool_run(p, tiles, sum_tile, &j);
}
