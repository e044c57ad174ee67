/* Attention and its gradient against the definition, written out in double precision. */
#include "engine/checked.h"
#include "engine/device/cpu/processor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct problem {
    int64_t sequences, length, heads, kv_heads, width;
    bool causal;
    float spread; /* of queries and keys: large ones make one key take all */
} problem;

static int64_t tokens_of(const problem *p) {
    return p->sequences * p->length;
}
static int64_t row_of(const problem *p) {
    return (p->heads + 2 * p->kv_heads) * p->width;
}
static int64_t out_row_of(const problem *p) {
    return p->heads * p->width;
}
static double scale_of(const problem *p) {
    return 1 / sqrt((double)p->width);
}

/* What attention writes and what its gradient writes, as fp32 (kernels) or fp64 (definition). */
typedef struct results {
    float *out, *logsumexp, *dqkv;
} results;

typedef struct exact_results {
    double *out, *logsumexp, *dqkv;
} exact_results;

static float *numbers(int64_t count, uint32_t seed, float spread) {
    float *values = memory_allocate((size_t)count, sizeof *values);
    for (int64_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = ((float)(seed >> 8) * 0x1p-23f - 1.0f) * spread;
    }
    return values;
}

static double dot(const float *a, const float *b, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* One query of one head: its output, logsumexp and its terms of all gradients. */
static void exact_query(const problem *p, const float *qkv, const float *dout, int64_t sequence, int64_t head,
                        int64_t query, exact_results *r) {
    int64_t row = row_of(p), width = p->width, start = sequence * p->length, token = start + query;
    int64_t key_at = (p->heads + head / (p->heads / p->kv_heads)) * width, value_at = key_at + p->kv_heads * width;
    int64_t keys = p->causal ? query + 1 : p->length;
    const float *q = qkv + token * row + head * width, *d = dout + token * out_row_of(p) + head * width;
    double *probability = memory_allocate((size_t)keys, sizeof *probability), largest = -INFINITY, sum = 0, delta = 0;
    for (int64_t j = 0; j < keys; j++) {
        probability[j] = dot(q, qkv + (start + j) * row + key_at, width) * scale_of(p);
        largest = fmax(largest, probability[j]);
    }
    for (int64_t j = 0; j < keys; j++)
        sum += exp(probability[j] - largest);
    r->logsumexp[token * p->heads + head] = largest + log(sum);
    double *out = r->out + token * out_row_of(p) + head * width;
    for (int64_t j = 0; j < keys; j++) {
        probability[j] = exp(probability[j] - largest) / sum;
        for (int64_t c = 0; c < width; c++)
            out[c] += probability[j] * (double)qkv[(start + j) * row + value_at + c];
    }
    for (int64_t c = 0; c < width; c++)
        delta += out[c] * (double)d[c];
    for (int64_t j = 0; j < keys; j++) {
        const float *k = qkv + (start + j) * row + key_at, *v = qkv + (start + j) * row + value_at;
        double ds = probability[j] * (dot(d, v, width) - delta) * scale_of(p);
        for (int64_t c = 0; c < width; c++) {
            r->dqkv[token * row + head * width + c] += ds * (double)k[c];
            r->dqkv[(start + j) * row + key_at + c] += ds * (double)q[c];
            r->dqkv[(start + j) * row + value_at + c] += probability[j] * (double)d[c];
        }
    }
    free(probability);
}

static exact_results exact(const problem *p, const float *qkv, const float *dout) {
    size_t tokens = (size_t)tokens_of(p);
    exact_results r = {memory_allocate(tokens * (size_t)out_row_of(p), sizeof(double)),
                       memory_allocate(tokens * (size_t)p->heads, sizeof(double)),
                       memory_allocate(tokens * (size_t)row_of(p), sizeof(double))};
    for (int64_t sequence = 0; sequence < p->sequences; sequence++)
        for (int64_t head = 0; head < p->heads; head++)
            for (int64_t query = 0; query < p->length; query++)
                exact_query(p, qkv, dout, sequence, head, query, &r);
    return r;
}

static void run(const cpu_kernel *kernel, pool *threads, launch *l) {
    size_t bytes = (size_t)round_up((int64_t)kernel->workspace(l, pool_threads(threads)), 256);
    l->workspace = aligned_alloc(256, bytes);
    memset(l->workspace, 0xFF, bytes); /* NaN: what is read must have been written */
    kernel->run(threads, l);
    free(l->workspace);
}

static results computed(const problem *p, float *qkv, float *dout, const cpu_kernel_table *table, pool *threads) {
    int64_t n = tokens_of(p);
    results r = {numbers(n * out_row_of(p), 0, NAN), numbers(n * p->heads, 0, NAN), numbers(n * row_of(p), 0, NAN)};
    operand given = {qkv, DTYPE_F32, {n, row_of(p), 1}}, gradient = {dout, DTYPE_F32, {n, out_row_of(p), 1}};
    operand out = {r.out, DTYPE_F32, {n, out_row_of(p), 1}}, logsumexp = {r.logsumexp, DTYPE_F32, {n, p->heads, 1}};
    launch l = {.kind = OPERATION_ATTENTION, .in = {given}, .out = {out, logsumexp}};
    l.attributes.sequence = p->length;
    l.attributes.heads = p->heads;
    l.attributes.kv_heads = p->kv_heads;
    l.attributes.head_width = p->width;
    l.attributes.causal = p->causal;
    l.attributes.scale = scale_of(p);
    run(&table->kernels[DTYPE_F32][OPERATION_ATTENTION], threads, &l);
    launch back = {.kind = OPERATION_ATTENTION_BACKWARD,
                   .attributes = l.attributes,
                   .in = {gradient, given, out, logsumexp},
                   .out = {{r.dqkv, DTYPE_F32, {n, row_of(p), 1}}}};
    run(&table->kernels[DTYPE_F32][OPERATION_ATTENTION_BACKWARD], threads, &back);
    return r;
}

static void results_destroy(results *r) {
    free(r->out);
    free(r->logsumexp);
    free(r->dqkv);
}

/* Relative to the largest exact value. */
static void assert_close(const problem *p, const char *what, const float *got, const double *want, int64_t count,
                         double tolerance) {
    double largest = 0, worst = 0;
    for (int64_t i = 0; i < count; i++) {
        largest = fmax(largest, fabs(want[i]));
        double difference = fabs((double)got[i] - want[i]);
        if (!(difference <= worst))
            worst = difference;
    }
    if (!(worst <= tolerance * largest))
        fail_msg("%s, %lld x %lld tokens, %lld heads on %lld of %lld, %s: off by %g, allowed %g", what,
                 (long long)p->sequences, (long long)p->length, (long long)p->heads, (long long)p->kv_heads,
                 (long long)p->width, p->causal ? "causal" : "full", worst, tolerance * largest);
}

static void check_problem(const problem *p, const cpu_kernel_table *table, pool **pools) {
    int64_t n = tokens_of(p);
    float *qkv = numbers(n * row_of(p), 1, p->spread), *dout = numbers(n * out_row_of(p), 2, 1);
    exact_results want = exact(p, qkv, dout);
    results first = computed(p, qkv, dout, table, pools[0]);
    /* A score is a sum of `width` products, so it is off by about spread^2 * sqrt(width) * 2^-24, and so is relatively
     * what is made of its exponential; the sums behind it add a few roundings. The factor covers the worst of up to a
     * hundred thousand numbers. */
    double tolerance = 8 * 0x1p-24 * (4 + (double)(p->spread * p->spread) * sqrt((double)p->width));
    assert_close(p, "out", first.out, want.out, n * out_row_of(p), tolerance);
    assert_close(p, "logsumexp", first.logsumexp, want.logsumexp, n * p->heads, tolerance);
    assert_close(p, "dqkv", first.dqkv, want.dqkv, n * row_of(p), 4 * tolerance);
    for (int i = 1; i < 3; i++) {
        results other = computed(p, qkv, dout, table, pools[i]);
        assert_memory_equal(first.out, other.out, (size_t)(n * out_row_of(p)) * sizeof(float));
        assert_memory_equal(first.logsumexp, other.logsumexp, (size_t)(n * p->heads) * sizeof(float));
        assert_memory_equal(first.dqkv, other.dqkv, (size_t)(n * row_of(p)) * sizeof(float));
        results_destroy(&other);
    }
    results_destroy(&first);
    free(want.out);
    free(want.logsumexp);
    free(want.dqkv);
    free(qkv);
    free(dout);
}

static void check_problems(const problem *problems, size_t count) {
    pool *pools[3];
    for (int i = 0; i < 3; i++) {
        error e = {0};
        assert_true(pool_create(i + 1, NULL, &pools[i], &e));
    }
    int tables = 0;
    const cpu_kernel_table *list = processor_kernels(&tables);
    for (int t = 0; t < tables; t++) {
        for (size_t i = 0; i < count; i++) {
            problem p = problems[i];
            for (int causal = 0; causal < 2; causal++) {
                p.causal = causal;
                check_problem(&p, &list[t], pools);
            }
        }
    }
    for (int i = 0; i < 3; i++)
        pool_destroy(pools[i]);
}

static void lengths_around_the_edges_of_blocks(void **state) {
    (void)state;
    static const int64_t lengths[] = {1,  2,  3,  7,  13,  14,  15,  16,  17,  31,  32,
                                      33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 300};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        problem p = {.sequences = 1, .length = lengths[i], .heads = 2, .kv_heads = 2, .width = 16, .spread = 1};
        check_problems(&p, 1);
    }
}

static void heads_of_any_width(void **state) {
    (void)state;
    static const int64_t widths[] = {1, 2, 5, 8, 24, 33, 64, 80, 128, 383, 384, 385, 800};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        problem p = {.sequences = 2, .length = 37, .heads = 2, .kv_heads = 1, .width = widths[i], .spread = 1};
        check_problems(&p, 1);
    }
}

static void heads_in_groups(void **state) {
    (void)state;
    static const problem problems[] = {
        {.sequences = 3, .length = 21, .heads = 1, .kv_heads = 1, .width = 12, .spread = 1},
        {.sequences = 2, .length = 140, .heads = 6, .kv_heads = 2, .width = 20, .spread = 1},
        {.sequences = 1, .length = 290, .heads = 4, .kv_heads = 1, .width = 16, .spread = 1},
    };
    check_problems(problems, sizeof problems / sizeof *problems);
}

static void long_sequences(void **state) {
    (void)state;
    static const problem problems[] = {
        {.sequences = 1, .length = 700, .heads = 1, .kv_heads = 1, .width = 8, .spread = 2},
        {.sequences = 1, .length = 1030, .heads = 1, .kv_heads = 1, .width = 4, .spread = 1},
    };
    check_problems(problems, sizeof problems / sizeof *problems);
}

/* Scores in the hundreds: exponentials underflow, and later keys rescale what earlier ones summed. */
static void peaked_scores(void **state) {
    (void)state;
    static const problem problems[] = {
        {.sequences = 1, .length = 300, .heads = 2, .kv_heads = 1, .width = 16, .spread = 12},
    };
    check_problems(problems, sizeof problems / sizeof *problems);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_around_the_edges_of_blocks),
        cmocka_unit_test(heads_of_any_width),
        cmocka_unit_test(heads_in_groups),
        cmocka_unit_test(long_sequences),
        cmocka_unit_test(peaked_scores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
