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

/* Numbers in [-1, 1), a fixed sequence per seed. */
static float *numbers(int64_t count, uint32_t seed) {
    float *values = memory_allocate((size_t)count, sizeof *values);
    for (int64_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (float)(seed >> 8) * 0x1p-23f - 1.0f;
    }
    return values;
}

typedef struct problem {
    int64_t m, n, k;
    bool transpose_a, transpose_b, accumulate, bias;
    float *a, *b, *added, *before; /* before: what c holds */
} problem;

static void problem_create(problem *p) {
    p->a = numbers(p->m * p->k, 1);
    p->b = numbers(p->k * p->n, 2);
    p->added = numbers(p->n, 3);
    p->before = numbers(p->m * p->n, 4);
}

static void problem_destroy(problem *p) {
    free(p->a);
    free(p->b);
    free(p->added);
    free(p->before);
}

enum { GUARD = 64 }; /* floats around c that must stay as they are */

/* c with GUARD floats of NaN before and behind it; freed by the caller. Starts as NaN where it is overwritten. */
static float *result_of(const problem *p, const cpu_kernel_table *table, pool *threads) {
    int64_t count = p->m * p->n;
    float *c = memory_allocate((size_t)(count + 2 * GUARD), sizeof *c);
    for (int64_t i = 0; i < count + 2 * GUARD; i++)
        c[i] = NAN;
    if (p->accumulate)
        memcpy(c + GUARD, p->before, (size_t)count * sizeof *c);
    launch l = {.kind = OPERATION_MATMUL, .accumulate = p->accumulate};
    l.attributes.transpose_a = p->transpose_a;
    l.attributes.transpose_b = p->transpose_b;
    l.in[0] = (operand){p->a, DTYPE_F32, {p->transpose_a ? p->k : p->m, p->transpose_a ? p->m : p->k, 1}};
    l.in[1] = (operand){p->b, DTYPE_F32, {p->transpose_b ? p->n : p->k, p->transpose_b ? p->k : p->n, 1}};
    l.in[2] = (operand){p->bias ? p->added : NULL, DTYPE_F32, {p->n, 1, 1}};
    l.out[0] = (operand){c + GUARD, DTYPE_F32, {p->m, p->n, 1}};
    const cpu_kernel *kernel = &table->kernels[DTYPE_F32][OPERATION_MATMUL];
    size_t bytes = kernel->workspace(&l, pool_threads(threads));
    l.workspace = aligned_alloc(256, (size_t)round_up((int64_t)bytes, 256));
    kernel->run(threads, &l);
    free(l.workspace);
    return c;
}

/* A sum of k products of numbers below 1 in fp32: rounding errors of 2^-24 each of a partial sum that is about
 * sqrt(k) / 3 and grow like sqrt(k); eight times that for the worst of some ten thousand elements. */
static double tolerance(const problem *p) {
    return 8 * 0x1p-24 * ((double)p->k / 3 + 2);
}

static double exact(const problem *p, int64_t i, int64_t j) {
    double sum = p->accumulate ? (double)p->before[i * p->n + j] : 0;
    for (int64_t k = 0; k < p->k; k++) {
        double a = p->transpose_a ? p->a[k * p->m + i] : p->a[i * p->k + k];
        double b = p->transpose_b ? p->b[j * p->k + k] : p->b[k * p->n + j];
        sum += a * b;
    }
    return sum + (p->bias ? (double)p->added[j] : 0);
}

static void assert_correct(const problem *p, const float *c) {
    for (int64_t i = 0; i < GUARD; i++) {
        assert_true(isnan(c[i]));
        assert_true(isnan(c[GUARD + p->m * p->n + i]));
    }
    for (int64_t i = 0; i < p->m; i++) {
        for (int64_t j = 0; j < p->n; j++) {
            double difference = fabs((double)c[GUARD + i * p->n + j] - exact(p, i, j));
            if (!(difference <= tolerance(p)))
                fail_msg("%lld x %lld x %lld%s%s at (%lld, %lld): off by %g, allowed %g", (long long)p->m,
                         (long long)p->n, (long long)p->k, p->transpose_a ? ", a transposed" : "",
                         p->transpose_b ? ", b transposed" : "", (long long)i, (long long)j, difference, tolerance(p));
        }
    }
}

/* Correct on one thread, and the same bits on two and three. */
static void check_problem(problem *p, const cpu_kernel_table *table, pool **pools) {
    problem_create(p);
    float *first = result_of(p, table, pools[0]);
    assert_correct(p, first);
    for (int i = 1; i < 3; i++) {
        float *other = result_of(p, table, pools[i]);
        assert_memory_equal(first + GUARD, other + GUARD, (size_t)(p->m * p->n) * sizeof *first);
        free(other);
    }
    free(first);
    problem_destroy(p);
}

static void with_all_layouts(const int64_t (*sizes)[3], size_t count) {
    pool *pools[3];
    for (int i = 0; i < 3; i++) {
        error e = {0};
        assert_true(pool_create(i + 1, NULL, &pools[i], &e));
    }
    int tables = 0;
    const cpu_kernel_table *list = processor_kernels(&tables);
    for (int t = 0; t < tables; t++) {
        for (size_t s = 0; s < count; s++) {
            for (unsigned layout = 0; layout < 4; layout++) {
                problem p = {.m = sizes[s][0], .n = sizes[s][1], .k = sizes[s][2]};
                p.transpose_a = layout & 1;
                p.transpose_b = layout & 2;
                p.accumulate = (s + layout) % 2;
                p.bias = (s + layout) % 3 == 0;
                check_problem(&p, &list[t], pools);
            }
        }
    }
    for (int i = 0; i < 3; i++)
        pool_destroy(pools[i]);
}

static void small_and_odd_sizes(void **state) {
    (void)state;
    static const int64_t edges[] = {1, 2, 5, 6, 7, 13, 14, 15, 16, 17, 31, 32, 33};
    enum { EDGES = sizeof edges / sizeof *edges };
    int64_t sizes[EDGES * EDGES][3];
    for (int64_t i = 0; i < EDGES * EDGES; i++) {
        sizes[i][0] = edges[i / EDGES];
        sizes[i][1] = edges[i % EDGES];
        sizes[i][2] = edges[(i * 5 + i / EDGES) % EDGES];
    }
    with_all_layouts(sizes, EDGES * EDGES);
}

static void sizes_around_the_edges_of_blocks(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {
        {111, 65, 63}, {112, 64, 64},  {113, 63, 65},   {127, 129, 257}, {1, 400, 383},  {400, 1, 384},
        {3, 383, 385}, {15, 385, 767}, {225, 384, 768}, {97, 97, 769},   {30, 800, 100}, {129, 35, 1000},
    };
    with_all_layouts(sizes, sizeof sizes / sizeof *sizes);
}

static void long_sums_stay_accurate(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{3, 17, 50257}};
    with_all_layouts(sizes, 1);
}

/* A row of the result is a function of its row of a alone: the same bits in a batch of any size. */
static void rows_do_not_depend_on_their_neighbours(void **state) {
    (void)state;
    int tables = 0;
    const cpu_kernel_table *table = &processor_kernels(&tables)[0];
    pool *one = NULL;
    error e = {0};
    assert_true(pool_create(1, NULL, &one, &e));
    problem all = {.m = 250, .n = 70, .k = 500};
    problem_create(&all);
    float *whole = result_of(&all, table, one);
    problem some = all;
    for (some.m = 1; some.m < all.m; some.m += 31) {
        float *part = result_of(&some, table, one);
        assert_memory_equal(part + GUARD, whole + GUARD, (size_t)(some.m * some.n) * sizeof *part);
        free(part);
    }
    free(whole);
    problem_destroy(&all);
    pool_destroy(one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_and_odd_sizes),
        cmocka_unit_test(sizes_around_the_edges_of_blocks),
        cmocka_unit_test(long_sums_stay_accurate),
        cmocka_unit_test(rows_do_not_depend_on_their_neighbours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
