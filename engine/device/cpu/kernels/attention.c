/* out = softmax(q k^T scale) v, without ever holding more of the scores than a few rows times a block of keys.
 *
 * A tile is a block of queries of one head. Keys are taken block by block; per query the largest score and the sum of
 * exponentials so far are kept, and what was summed before is rescaled when a larger score turns up (Milakov and
 * Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et al., "FlashAttention", 2022). */
#include "engine/device/cpu/kernels/attention_parts.h"

enum { QUERIES = 256, KEYS = 256 }; /* of a block; scores must fit packed rows */
_Static_assert(KEYS % PANEL == 0 && KEYS <= (int)DEPTH, "scores are the rows of the second product");

typedef struct forward {
    attention_shape shape;
    const stored *qkv;
    stored *out;
    float *logsumexp;
    int64_t query_blocks; /* per head */
    float *scratch;
    int64_t scratch_floats; /* of one thread */
} forward;

typedef struct scratch {
    float *q_rows;                 /* layers of [QUERIES][ROW_STRIDE] */
    float *key_panels;             /* layers of KEYS columns */
    float *value_panels;           /* [KEYS] deep, width columns */
    float *scores;                 /* [HEIGHT][ROW_STRIDE]; then exponentials */
    float *sums;                   /* [QUERIES][padded]: exponentials times values */
    float *largest, *exponentials; /* [QUERIES]: largest score, sum of exponentials relative to it */
} scratch;

static scratch divide_scratch(const attention_shape *s, area *from) {
    return (scratch){
        .q_rows = take(from, layers_of(s) * QUERIES * ROW_STRIDE),
        .key_panels = take(from, layers_of(s) * panels_layer(s, KEYS)),
        .value_panels = take(from, s->padded * (KEYS | 1)),
        .scores = take(from, HEIGHT * ROW_STRIDE),
        .sums = take(from, QUERIES * s->padded),
        .largest = take(from, QUERIES),
        .exponentials = take(from, QUERIES),
    };
}

static int64_t scratch_floats(const attention_shape *s) {
    area counted = {0};
    divide_scratch(s, &counted);
    return counted.floats;
}

/* Scores of one query to exponentials relative to the largest so far; returns the factor by which earlier sums shrink.
 * Of `keys` scores the first `valid` count; the others become zero. */
static float exponentiate(float *scores, int64_t valid, int64_t keys, float scale, float *largest, float *sum) {
    int64_t whole = round_up(valid, LANES);
    for (int64_t j = valid; j < whole; j++)
        scores[j] = -INFINITY;
    vector most = vector_set(*largest);
    for (int64_t j = 0; j < whole; j += LANES) {
        vector scaled = vector_load(scores + j) * scale;
        vector_store(scores + j, scaled);
        most = vector_max(scaled, most);
    }
    float previous = *largest, now = vector_max_lanes(most);
    vector total = {0};
    for (int64_t j = 0; j < whole; j += LANES) {
        vector power = vector_exp(vector_load(scores + j) - now);
        vector_store(scores + j, power);
        total += power;
    }
    for (int64_t j = whole; j < keys; j++)
        scores[j] = 0;
    float shrink = expf(previous - now);
    *largest = now;
    *sum = *sum * shrink + vector_sum_lanes(total);
    return shrink;
}

static void scale_row(float *row, int64_t count, float factor) {
    for (int64_t j = 0; j < count; j++)
        row[j] *= factor;
}

/* A group of queries against a block of keys. query: number of the block's first query in its sequence. */
static void attend(const attention_shape *s, const scratch *w, row_group group, int64_t query, int64_t key,
                   int64_t keys) {
    int64_t first = query + group.first, last = first + group.height - 1;
    int64_t needed = s->causal ? minimum(keys, last + 1 - key) : keys;
    if (needed <= 0)
        return;
    multiply_head(s, group.height, 0, round_up(needed, PANEL), w->q_rows + group.first * ROW_STRIDE, QUERIES,
                  w->key_panels, KEYS, w->scores);
    for (int r = 0; r < group.height; r++) {
        int64_t i = group.first + r, valid = s->causal ? minimum(needed, first + r + 1 - key) : needed;
        float *scores = w->scores + r * ROW_STRIDE;
        if (valid <= 0) {
            memset(scores, 0, (size_t)needed * sizeof *scores);
            continue;
        }
        float shrink = exponentiate(scores, valid, needed, s->scale, &w->largest[i], &w->exponentials[i]);
        if (key > 0 && shrink != 1)
            scale_row(w->sums + i * s->padded, s->padded, shrink);
    }
    multiply_group(group.height, s->padded, needed, w->scores, w->value_panels, panel_stride(keys),
                   w->sums + group.first * s->padded, s->padded, key > 0);
}

static void write_results(const forward *f, const scratch *w, int64_t token, int64_t queries, int64_t head) {
    const attention_shape *s = &f->shape;
    for (int64_t i = 0; i < queries; i++) {
        stored *out = f->out + ((token + i) * s->heads + head) * s->width;
        const float *sums = w->sums + i * s->padded;
        float factor = 1.0f / w->exponentials[i];
        for (int64_t j = 0; j < s->width; j += LANES) /* rows of sums are whole vectors */
            stored_store_up_to(out + j, s->width - j, vector_load(sums + j) * factor);
        f->logsumexp[(token + i) * s->heads + head] = w->largest[i] + logf(w->exponentials[i]);
    }
}

static void attend_tile(void *context, int64_t tile, int thread) {
    const forward *f = context;
    const attention_shape *s = &f->shape;
    scratch w = divide_scratch(s, &(area){.start = f->scratch + thread * f->scratch_floats});
    int64_t query = tile % f->query_blocks * QUERIES, queries = minimum(QUERIES, s->length - query);
    int64_t head = tile / f->query_blocks % s->heads, sequence = tile / f->query_blocks / s->heads;
    int64_t key_head = s->heads + head / (s->heads / s->kv_heads);
    matrix q = head_of(f->qkv, s, sequence, s->row, head * s->width);
    matrix k = head_of(f->qkv, s, sequence, s->row, key_head * s->width);
    matrix v = transposed(head_of(f->qkv, s, sequence, s->row, (key_head + s->kv_heads) * s->width));

    pack_head_rows(s, &q, query, queries, QUERIES, w.q_rows);
    for (int64_t i = 0; i < queries; i++) {
        w.largest[i] = -INFINITY;
        w.exponentials[i] = 0;
    }
    int64_t end = s->causal ? query + queries : s->length;
    for (int64_t key = 0; key < end; key += KEYS) {
        int64_t keys = minimum(KEYS, end - key);
        pack_head_panels(s, &k, key, keys, KEYS, w.key_panels);
        STORED(pack_panels)(&v, 0, s->width, key, keys, w.value_panels);
        for (int64_t group = 0; group < row_groups(queries); group++)
            attend(s, &w, row_group_of(queries, group), query, key, keys);
    }
    write_results(f, &w, sequence * s->length + query, queries, head);
}

size_t STORED(attention_workspace)(const launch *l, int threads) {
    attention_shape s = attention_shape_of(l, &l->in[0]);
    return (size_t)must_multiply(threads, scratch_floats(&s) * (int64_t)sizeof(float));
}

void STORED(attention_run)(pool *threads, const launch *l) {
    forward f = {.shape = attention_shape_of(l, &l->in[0]),
                 .qkv = l->in[0].data,
                 .out = l->out[0].data,
                 .logsumexp = l->out[1].data,
                 .scratch = l->workspace};
    f.scratch_floats = scratch_floats(&f.shape);
    f.query_blocks = divide_up(f.shape.length, QUERIES);
    pool_run(threads, f.shape.sequences * f.shape.heads * f.query_blocks, attend_tile, &f);
}
