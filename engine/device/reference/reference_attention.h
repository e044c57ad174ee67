/* Part of reference_kernels.h: attention of one query at a time. Shapes and formulas: operation.h. */
#include "engine/checked.h"

#include <stdlib.h>

/* Where one head's values of one token stand: query head h; its key head; the values of that head. */
static int64_t query_at(const attributes *a, int64_t h) {
    return h * a->head_width;
}
static int64_t key_at(const attributes *a, int64_t h) {
    return (a->heads + h / (a->heads / a->kv_heads)) * a->head_width;
}
static int64_t value_at(const attributes *a, int64_t h) {
    return key_at(a, h) + a->kv_heads * a->head_width;
}

static double dot(const real *a, const real *b, int64_t count) {
    double total = 0;
    for (int64_t i = 0; i < count; i++)
        total += (double)a[i] * (double)b[i];
    return total;
}

/* Query t of head h against the keys of its sequence, which starts at `qkv`. `scores` has room for the sequence. */
static void attend(const attributes *a, const real *qkv, int64_t width, int64_t h, int64_t t, double *scores, real *out,
                   real *logsumexp) {
    int64_t keys = a->causal ? t + 1 : a->sequence;
    double largest = -HUGE_VAL, total = 0;
    for (int64_t k = 0; k < keys; k++) {
        scores[k] = a->scale * dot(qkv + t * width + query_at(a, h), qkv + k * width + key_at(a, h), a->head_width);
        largest = fmax(largest, scores[k]);
    }
    for (int64_t k = 0; k < keys; k++)
        total += exp(scores[k] - largest);
    for (int64_t d = 0; d < a->head_width; d++) {
        double mixed = 0;
        for (int64_t k = 0; k < keys; k++)
            mixed += exp(scores[k] - largest) / total * (double)qkv[k * width + value_at(a, h) + d];
        out[d] = (real)mixed;
    }
    *logsumexp = (real)(largest + log(total));
}

static void attention(const launch *l) {
    const attributes *a = &l->attributes;
    const real *qkv = l->in[0].data;
    real *out = l->out[0].data, *logsumexp = l->out[1].data;
    int64_t rows = l->in[0].shape[0], width = l->in[0].shape[1];
    double *scores = memory_allocate((size_t)a->sequence, sizeof *scores);
    for (int64_t i = 0; i < rows; i++) {
        int64_t t = i % a->sequence;
        for (int64_t h = 0; h < a->heads; h++)
            attend(a, qkv + (i - t) * width, width, h, t, scores, out + (i * a->heads + h) * a->head_width,
                   logsumexp + i * a->heads + h);
    }
    free(scores);
}

/* Adds what query t of head h gives to the gradients of its sequence, in `dqkv` (double, laid out like qkv).
 * p = exp(score - logsumexp); dv = p dout; dp = dout . v; dscore = p (dp - dout . out); then q and k. */
static void attend_backward(const attributes *a, const real *qkv, int64_t width, int64_t h, int64_t t, const real *dout,
                            const real *out, double logsumexp, double *dqkv) {
    int64_t keys = a->causal ? t + 1 : a->sequence, head_width = a->head_width;
    const real *query = qkv + t * width + query_at(a, h);
    double *dquery = dqkv + t * width + query_at(a, h), correction = dot(dout, out, head_width);
    for (int64_t k = 0; k < keys; k++) {
        const real *key = qkv + k * width + key_at(a, h), *value = qkv + k * width + value_at(a, h);
        double *dkey = dqkv + k * width + key_at(a, h), *dvalue = dqkv + k * width + value_at(a, h);
        double p = exp(a->scale * dot(query, key, head_width) - logsumexp);
        double dscore = p * (dot(dout, value, head_width) - correction) * a->scale;
        for (int64_t d = 0; d < head_width; d++) {
            dvalue[d] += p * (double)dout[d];
            dquery[d] += dscore * (double)key[d];
            dkey[d] += dscore * (double)query[d];
        }
    }
}

static void attention_backward(const launch *l) {
    const attributes *a = &l->attributes;
    const real *dout = l->in[0].data, *qkv = l->in[1].data, *out = l->in[2].data, *logsumexp = l->in[3].data;
    real *dqkv = l->out[0].data;
    int64_t rows = l->in[1].shape[0], width = l->in[1].shape[1];
    double *totals = memory_allocate((size_t)must_multiply(rows, width), sizeof *totals);
    for (int64_t i = 0; i < rows; i++) {
        int64_t t = i % a->sequence, start = (i - t) * width;
        for (int64_t h = 0; h < a->heads; h++) {
            int64_t at = (i * a->heads + h) * a->head_width;
            attend_backward(a, qkv + start, width, h, t, dout + at, out + at, (double)logsumexp[i * a->heads + h],
                            totals + start);
        }
    }
    for (int64_t i = 0; i < rows * width; i++)
        dqkv[i] = (real)totals[i];
    free(totals);
}
