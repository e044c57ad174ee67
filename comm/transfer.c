#include "comm/transfer.h"

#include "engine/checked.h"
#include "engine/device/half.h"

#include <string.h>

enum {
    TILE_BYTES = 2 << 20, /* one thread's piece, and what is resident of a peer at most per thread */
    BLOCK_ELEMENTS = 2048 /* sums of one block stay in the first-level cache while all parts are added */
};

static void drop(const window *v, const part *p, int64_t from, int64_t bytes) {
    if (p->rank != NO_RANK)
        window_drop(v, p->rank, p->offset + from, bytes);
}

typedef struct copy_job {
    const window *window;
    const part *parts;
    int64_t tiles_per_part;
} copy_job;

static void copy_tile(void *context, int64_t tile, int thread) {
    (void)thread;
    const copy_job *j = context;
    const part *p = &j->parts[tile / j->tiles_per_part];
    int64_t from = tile % j->tiles_per_part * TILE_BYTES, bytes = minimum(TILE_BYTES, p->bytes - from);
    if (bytes <= 0)
        return;
    memcpy((char *)p->to + from, (const char *)p->from + from, (size_t)bytes);
    drop(j->window, p, from, bytes);
}

void transfer_copy(pool *p, const window *v, const part *parts, int count) {
    int64_t largest = 0;
    for (int k = 0; k < count; k++)
        largest = maximum(largest, parts[k].bytes);
    copy_job j = {.window = v, .parts = parts, .tiles_per_part = divide_up(largest, TILE_BYTES)};
    if (j.tiles_per_part > 0)
        pool_run(p, count * j.tiles_per_part, copy_tile, &j);
}

static void load(dtype type, const void *from, int64_t first, int64_t count, float *to) {
    if (type == DTYPE_F32) {
        memcpy(to, (const float *)from + first, (size_t)count * sizeof *to);
        return;
    }
    const uint16_t *half = (const uint16_t *)from + first;
    for (int64_t i = 0; i < count; i++)
        to[i] = float_from_bf16(half[i]);
}

static void store(dtype type, const float *from, int64_t count, void *to, int64_t first) {
    if (type == DTYPE_F32) {
        memcpy((float *)to + first, from, (size_t)count * sizeof *from);
        return;
    }
    uint16_t *half = (uint16_t *)to + first;
    for (int64_t i = 0; i < count; i++)
        half[i] = bf16_from_float(from[i]);
}

static void add(float *sum, const float *more, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        sum[i] += more[i];
}

/* sum[i] += element first + i */
static void add_stored(dtype type, const void *more, int64_t first, int64_t count, float *sum) {
    if (type == DTYPE_F32) {
        add(sum, (const float *)more + first, count);
        return;
    }
    const uint16_t *half = (const uint16_t *)more + first;
    for (int64_t i = 0; i < count; i++)
        sum[i] += float_from_bf16(half[i]);
}

/* sum[] = elements first .. first + count of `members` parts from `member` on. As deep as the group has factors of two,
 * with a block on the stack for each. */
static void sum_members(const summation *s, int member, int members, int64_t first, int64_t count, float *sum) {
    if (members > s->odd) {
        float right[BLOCK_ELEMENTS];
        sum_members(s, member, members / 2, first, count, sum);
        sum_members(s, member + members / 2, members / 2, first, count, right);
        add(sum, right, count);
        return;
    }
    load(s->type, s->parts[member].from, first, count, sum);
    for (int k = 1; k < members; k++)
        add_stored(s->type, s->parts[member + k].from, first, count, sum);
}

static void sum_block(const summation *s, int64_t first, int64_t count) {
    float sum[BLOCK_ELEMENTS], before[BLOCK_ELEMENTS];
    sum_members(s, 0, s->count, first, count, sum);
    if (s->accumulate) {
        load(s->out_type, s->out, first, count, before);
        add(sum, before, count);
    }
    store(s->out_type, sum, count, s->out, first);
}

typedef struct sum_job {
    const window *window;
    const summation *sum;
} sum_job;

static void sum_tile(void *context, int64_t tile, int thread) {
    (void)thread;
    const sum_job *j = context;
    const summation *s = j->sum;
    const int64_t size = dtype_bytes(s->type), tile_elements = TILE_BYTES / size;
    int64_t first = tile * tile_elements, total = s->parts[0].bytes / size;
    int64_t count = minimum(tile_elements, total - first);
    for (int64_t i = 0; i < count; i += BLOCK_ELEMENTS)
        sum_block(s, first + i, minimum(BLOCK_ELEMENTS, count - i));
    for (int k = 0; k < s->count; k++)
        drop(j->window, &s->parts[k], first * size, count * size);
}

void transfer_sum(pool *p, const window *v, const summation *s) {
    sum_job j = {.window = v, .sum = s};
    int64_t tiles = divide_up(s->parts[0].bytes, TILE_BYTES);
    if (tiles > 0)
        pool_run(p, tiles, sum_tile, &j);
}
