/* The gradient of attention.c from what it leaves: the output and each query's logsumexp, so that probabilities are
 * computed again, block by block, without a second softmax (Dao et al., "FlashAttention", 2022, algorithm 4). With
 * p = exp(q k^T scale - logsumexp) and delta = sum over the head of dout * out:
 *
 *   dv = p^T dout    ds = p * (dout v^T - delta) * scale    dk = ds^T q    dq = ds k
 *
 * A tile is a key head of a sequence with all query heads that read it, so every sum has one order and one writer.
 * Scores are computed transposed, a row per key: then a vector holds queries, logsumexp and delta are vectors as well,
 * and the rows are what the products for dv and dk need. Only dq's product needs them the other way round. */
#include "engine/device/cpu/kernels/attention_parts.h"

enum { QUERIES = 128, KEYS = 256 }; /* of a block */
_Static_assert(QUERIES % PANEL == 0 && QUERIES <= (int)DEPTH && KEYS <= (int)DEPTH,
               "both are inner indices of products");

typedef struct backward {
    attention_shape shape;
    const stored *dout, *qkv, *out;
    const float *logsumexp;
    stored *dqkv;
    float *scratch;
    int64_t scratch_floats; /* of one thread */
} backward;

typedef struct scratch {
    float *key_rows, *value_rows;        /* layers of [KEYS][ROW_STRIDE] */
    float *key_panels;                   /* [KEYS] deep, width columns */
    float *query_columns, *dout_columns; /* layers of QUERIES columns */
    float *query_panels, *dout_panels;   /* [QUERIES] deep, width columns */
    float *logsumexp, *delta;            /* [QUERIES] */
    float *probabilities;                /* [HEIGHT][ROW_STRIDE]: keys x queries */
    float *dscores;                      /* [KEYS][ROW_STRIDE]: keys x queries */
    float *dscore_rows;                  /* [QUERIES][ROW_STRIDE]: queries x keys */
    float *dquery;                       /* [HEIGHT][padded] */
    float *dkey, *dvalue;                /* [KEYS][padded] */
    float *dqueries;                     /* [heads of the tile][length][width], where STORED_ROUNDS: dq is a sum over
                                            blocks of keys, which is rounded after the last */
} scratch;

static scratch divide_scratch(const attention_shape *s, area *from) {
    return (scratch){
        .key_rows = take(from, layers_of(s) * KEYS * ROW_STRIDE),
        .value_rows = take(from, layers_of(s) * KEYS * ROW_STRIDE),
        .key_panels = take(from, s->padded * (KEYS | 1)),
        .query_columns = take(from, layers_of(s) * panels_layer(s, QUERIES)),
        .dout_columns = take(from, layers_of(s) * panels_layer(s, QUERIES)),
        .query_panels = take(from, s->padded * (QUERIES | 1)),
        .dout_panels = take(from, s->padded * (QUERIES | 1)),
        .logsumexp = take(from, QUERIES),
        .delta = take(from, QUERIES),
        .probabilities = take(from, HEIGHT * ROW_STRIDE),
        .dscores = take(from, KEYS * ROW_STRIDE),
        .dscore_rows = take(from, QUERIES * ROW_STRIDE),
        .dquery = take(from, HEIGHT * s->padded),
        .dkey = take(from, KEYS * s->padded),
        .dvalue = take(from, KEYS * s->padded),
        .dqueries = take(from, STORED_ROUNDS ? s->heads / s->kv_heads * s->length * s->width : 0),
    };
}

static int64_t scratch_floats(const attention_shape *s) {
    area counted = {0};
    divide_scratch(s, &counted);
    return counted.floats;
}

/* Where a tile stands: its sequence and heads, and the blocks of queries and keys (numbers within the sequence). */
typedef struct place {
    int64_t sequence, key_head, head;
    int64_t key, keys, query, queries;
} place;

static float dot(const stored *a, const stored *b, int64_t count) {
    vector sum = {0};
    int64_t j = 0;
    for (; j + LANES <= count; j += LANES)
        sum += stored_load(a + j) * stored_load(b + j);
    float total = vector_sum_lanes(sum);
    for (; j < count; j++)
        total += stored_get(a + j) * stored_get(b + j);
    return total;
}

static void prepare_keys(const backward *b, const scratch *w, const place *at) {
    const attention_shape *s = &b->shape;
    matrix k = head_of(b->qkv, s, at->sequence, s->row, (s->heads + at->key_head) * s->width);
    matrix v = head_of(b->qkv, s, at->sequence, s->row, (s->heads + s->kv_heads + at->key_head) * s->width);
    matrix across = transposed(k);
    pack_head_rows(s, &k, at->key, at->keys, KEYS, w->key_rows);
    pack_head_rows(s, &v, at->key, at->keys, KEYS, w->value_rows);
    STORED(pack_panels)(&across, 0, s->width, at->key, at->keys, w->key_panels);
    memset(w->dkey, 0, (size_t)(at->keys * s->padded) * sizeof(float));
    memset(w->dvalue, 0, (size_t)(at->keys * s->padded) * sizeof(float));
}

static void prepare_queries(const backward *b, const scratch *w, const place *at) {
    const attention_shape *s = &b->shape;
    int64_t out_row = s->heads * s->width;
    matrix q = head_of(b->qkv, s, at->sequence, s->row, at->head * s->width), q_across = transposed(q);
    matrix d = head_of(b->dout, s, at->sequence, out_row, at->head * s->width), d_across = transposed(d);
    pack_head_panels(s, &q, at->query, at->queries, QUERIES, w->query_columns);
    pack_head_panels(s, &d, at->query, at->queries, QUERIES, w->dout_columns);
    STORED(pack_panels)(&q_across, 0, s->width, at->query, at->queries, w->query_panels);
    STORED(pack_panels)(&d_across, 0, s->width, at->query, at->queries, w->dout_panels);
    for (int64_t i = 0; i < at->queries; i++) {
        int64_t cell = (at->sequence * s->length + at->query + i) * s->heads + at->head;
        w->logsumexp[i] = b->logsumexp[cell];
        w->delta[i] = dot(b->dout + cell * s->width, b->out + cell * s->width, s->width);
    }
    for (int64_t i = at->queries; i < round_up(at->queries, PANEL); i++) {
        w->logsumexp[i] = INFINITY; /* a probability of zero where there is no query */
        w->delta[i] = 0;
    }
}

/* Scores of one key to probabilities, gradients of probabilities to gradients of scores, for queries from .. to. */
static void differentiate(const scratch *w, float *scores, float *dscores, int64_t from, int64_t to, float scale) {
    for (int64_t i = from; i < to; i += LANES) {
        vector p = vector_exp(vector_load(scores + i) * scale - vector_load(w->logsumexp + i));
        vector ds = p * (vector_load(dscores + i) - vector_load(w->delta + i)) * scale;
        vector_store(scores + i, p);
        vector_store(dscores + i, ds);
    }
}

/* A group of keys against a block of queries: dscores of these keys, and their share of dkey and dvalue. */
static void backward_keys(const attention_shape *s, const scratch *w, const place *at, row_group group) {
    int64_t key = at->key + group.first, to = round_up(at->queries, PANEL);
    int64_t from = s->causal ? maximum(0, key - at->query) / PANEL * PANEL : 0; /* earlier queries do not see them */
    float *dscores = w->dscores + group.first * ROW_STRIDE;
    multiply_head(s, group.height, from, to - from, w->key_rows + group.first * ROW_STRIDE, KEYS, w->query_columns,
                  QUERIES, w->probabilities + from);
    multiply_head(s, group.height, from, to - from, w->value_rows + group.first * ROW_STRIDE, KEYS, w->dout_columns,
                  QUERIES, dscores + from);
    for (int r = 0; r < group.height; r++) {
        int64_t unseen = s->causal ? minimum(at->queries, maximum(0, key + r - at->query)) : 0;
        differentiate(w, w->probabilities + r * ROW_STRIDE, dscores + r * ROW_STRIDE, from, to, s->scale);
        memset(w->probabilities + r * ROW_STRIDE, 0, (size_t)unseen * sizeof(float));
        memset(dscores + r * ROW_STRIDE, 0, (size_t)unseen * sizeof(float));
    }
    int64_t start = s->causal ? maximum(0, key - at->query) : 0, depth = at->queries - start;
    int64_t between = panel_stride(at->queries);
    multiply_group(group.height, s->padded, depth, w->probabilities + start, w->dout_panels + start * PANEL, between,
                   w->dvalue + group.first * s->padded, s->padded, true);
    multiply_group(group.height, s->padded, depth, dscores + start, w->query_panels + start * PANEL, between,
                   w->dkey + group.first * s->padded, s->padded, true);
}

static void sum_row(float *to, const float *from, int64_t count, bool add) {
    for (int64_t j = 0; j < count; j++)
        to[j] = add ? to[j] + from[j] : from[j];
}

static stored *gradient_row(const backward *b, const place *at, int64_t token, int64_t head) {
    return b->dqkv + (at->sequence * b->shape.length + token) * b->shape.row + head * b->shape.width;
}

/* Where the sums for dq of a query are: in dqkv itself, or apart. */
static float *query_sums(const backward *b, const scratch *w, const place *at, int64_t query) {
    const attention_shape *s = &b->shape;
    if (!STORED_ROUNDS)
        return (float *)gradient_row(b, at, query, at->head);
    int64_t member = at->head - at->key_head * (s->heads / s->kv_heads);
    return w->dqueries + (member * s->length + query) * s->width;
}

/* dq of a block of queries: the share of this block of keys. `keys`: how many of them any of the queries sees. */
static void backward_queries(const backward *b, const scratch *w, const place *at, int64_t keys) {
    const attention_shape *s = &b->shape;
    matrix across = {w->dscores, ROW_STRIDE, true};
    PACK_ROWS_FP32(&across, 0, at->queries, 0, keys, w->dscore_rows);
    for (int64_t g = 0; g < row_groups(at->queries); g++) {
        row_group group = row_group_of(at->queries, g);
        int64_t end = at->query + group.first + group.height;
        int64_t depth = s->causal ? maximum(0, minimum(keys, end - at->key)) : keys;
        multiply_group(group.height, s->padded, depth, w->dscore_rows + group.first * ROW_STRIDE, w->key_panels,
                       panel_stride(at->keys), w->dquery, s->padded, false);
        for (int r = 0; r < group.height; r++)
            sum_row(query_sums(b, w, at, at->query + group.first + r), w->dquery + r * s->padded, s->width,
                    at->key > 0);
    }
}

static void backward_block(const backward *b, const scratch *w, const place *at) {
    const attention_shape *s = &b->shape;
    prepare_queries(b, w, at);
    int64_t keys = s->causal ? minimum(at->keys, at->query + at->queries - at->key) : at->keys;
    for (int64_t g = 0; g < row_groups(keys); g++)
        backward_keys(s, w, at, row_group_of(keys, g));
    backward_queries(b, w, at, keys);
}

static void write_keys(const backward *b, const scratch *w, const place *at) {
    const attention_shape *s = &b->shape;
    for (int64_t i = 0; i < at->keys; i++) {
        stored *dkey = gradient_row(b, at, at->key + i, s->heads + at->key_head),
               *dvalue = dkey + s->kv_heads * s->width;
        STORAGE(narrow_run)(w->dkey + i * s->padded, s->width, dkey);
        STORAGE(narrow_run)(w->dvalue + i * s->padded, s->width, dvalue);
    }
}

static void write_queries(const backward *b, const scratch *w, place at) {
    const attention_shape *s = &b->shape;
    int64_t group = s->heads / s->kv_heads, first = at.key_head * group;
    for (at.head = first; at.head < first + group; at.head++)
        for (int64_t query = 0; query < s->length; query++)
            STORAGE(narrow_run)(query_sums(b, w, &at, query), s->width, gradient_row(b, &at, query, at.head));
}

static void backward_tile(void *context, int64_t tile, int thread) {
    const backward *b = context;
    const attention_shape *s = &b->shape;
    scratch w = divide_scratch(s, &(area){.start = b->scratch + thread * b->scratch_floats});
    int64_t group = s->heads / s->kv_heads;
    place at = {.sequence = tile / s->kv_heads, .key_head = tile % s->kv_heads};
    for (at.key = 0; at.key < s->length; at.key += KEYS) {
        at.keys = minimum(KEYS, s->length - at.key);
        prepare_keys(b, &w, &at);
        for (at.head = at.key_head * group; at.head < (at.key_head + 1) * group; at.head++) {
            for (at.query = s->causal ? at.key / QUERIES * QUERIES : 0; at.query < s->length; at.query += QUERIES) {
                at.queries = minimum(QUERIES, s->length - at.query);
                backward_block(b, &w, &at);
            }
        }
        write_keys(b, &w, &at);
    }
    if (STORED_ROUNDS)
        write_queries(b, &w, at);
}

size_t STORED(attention_backward_workspace)(const launch *l, int threads) {
    attention_shape s = attention_shape_of(l, &l->in[1]);
    return (size_t)must_multiply(threads, scratch_floats(&s) * (int64_t)sizeof(float));
}

void STORED(attention_backward_run)(pool *threads, const launch *l) {
    backward b = {.shape = attention_shape_of(l, &l->in[1]),
                  .dout = l->in[0].data,
                  .qkv = l->in[1].data,
                  .out = l->in[2].data,
                  .logsumexp = l->in[3].data,
                  .dqkv = l->out[0].data,
                  .scratch = l->workspace};
    b.scratch_floats = scratch_floats(&b.shape);
    pool_run(threads, b.shape.sequences * b.shape.kv_heads, backward_tile, &b);
}
