#include "comm/transfer.h"

#include "engine/checked.h"
#include "engine/device/cpu/shared_memory.h"
#include "engine/device/half.h"

#include <string.h>

enum {
    TILE_BYTES = HUGE_PAGE, /* of a peer's arena: one thread's piece, and what is resident of the peer per thread */
    BLOCK_ELEMENTS = 2048   /* sums of one block stay in the first-level cache while all parts are added */
};

/* Bytes of a part. */
typedef struct range {
    int64_t from, bytes;
} range;

/* Tiles end where huge pages of the arena do, so that no page is mapped for two of them. */
static int64_t tiles_of(const part *p) {
    return divide_up(p->offset % TILE_BYTES + p->bytes, TILE_BYTES);
}

static range range_of(const part *p, int64_t tile) {
    const int64_t before = p->offset % TILE_BYTES;
    const int64_t from = maximum(0, tile * TILE_BYTES - before);
    return (range){from, minimum((tile + 1) * TILE_BYTES - before, p->bytes) - from};
}

static void drop(const window *v, const part *p, range r) {
    if (p->rank != NO_RANK)
        window_drop(v, p->rank, p->offset + r.from, r.bytes);
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
    const range r = range_of(p, tile % j->tiles_per_part);
    if (r.bytes <= 0)
        return;
    memcpy((char *)p->to + r.from, (const char *)p->from + r.from, (size_t)r.bytes);
    drop(j->window, p, r);
}

void transfer_copy(pool *p, const window *v, const part *parts, int count) {
    copy_job j = {.window = v, .parts = parts};
    for (int k = 0; k < count; k++)
        j.tiles_per_part = maximum(j.tiles_per_part, tiles_of(&parts[k]));
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
    const range r = range_of(s->parts, tile);
    const int64_t size = dtype_bytes(s->type), first = r.from / size, count = r.bytes / size;
    for (int64_t i = 0; i < count; i += BLOCK_ELEMENTS)
        sum_block(s, first + i, minimum(BLOCK_ELEMENTS, count - i));
    for (int k = 0; k < s->count; k++)
        drop(j->window, &s->parts[k], r);
}

void transfer_sum(pool *p, const window *v, const summation *s) {
    sum_job j = {.window = v, .sum = s};
    if (s->parts[0].bytes > 0)
        pool_run(p, tiles_of(s->parts), sum_tile, &j);
}
