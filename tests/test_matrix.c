/* Every pair of choices (support/matrix.h), each run against one rank with the same batch. */
#include "launch/config.h"
#include "support/matrix.h"
#include "support/small_training.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MEMORY_SHARE = 2 };

static const int compute_of[] = {[DTYPE_F32] = CONFIG_FP32, [DTYPE_BF16] = CONFIG_BF16, [DTYPE_F16] = CONFIG_FP16};

static small_training training_of(const matrix_run *run) {
    return (small_training){.shape = small_shape(run->family, run->family == FAMILY_GPT2),
                            .ranks = run->ranks,
                            .group = run->group,
                            .threads = 1,
                            .prefetch = run->prefetch,
                            .keep_gathered = run->keep_gathered,
                            .reduce_each = run->reduce_each,
                            .recompute = run->recompute,
                            .compute = compute_of[run->storage],
                            .unit_blocks = run->unit_blocks,
                            .global_batch = (int64_t)run->ranks * run->passes,
                            .micro_batch = 1,
                            .sequence = 19};
}

/* Half way between what keeping all and what recomputing all needs. */
static int64_t budget_of(small_training t) {
    t.recompute = RECOMPUTE_NONE;
    small_result most = small_training_run(&t);
    t.recompute = RECOMPUTE_BLOCK;
    small_result least = small_training_run(&t);
    free(most.weights);
    free(least.weights);
    return least.arena_bytes + (most.arena_bytes - least.arena_bytes) / MEMORY_SHARE;
}

static small_result alone(small_training t) {
    t.ranks = t.group = 1;
    t.prefetch = 1;
    t.keep_gathered = false;
    t.reduce_each = false;
    t.recompute = RECOMPUTE_NONE;
    t.unit_blocks = 1;
    return small_training_run(&t);
}

/* Tolerances as in test_training.c: fp32 sums in another order, and roundings that fall elsewhere. */
typedef struct tolerances {
    double loss, norm, weights;
} tolerances;
static const tolerances near_of[] = {
    [DTYPE_F32] = {1e-6, 1e-5, 1e-5}, [DTYPE_BF16] = {0x1p-9, 0x1p-6, 0x1p-5}, [DTYPE_F16] = {0x1p-12, 0x1p-9, 0x1p-8}};

static void compare(const matrix_run *run) {
    small_training t = training_of(run);
    if (t.recompute == RECOMPUTE_MEMORY)
        t.memory = budget_of(t);
    small_result got = small_training_run(&t), expected = alone(t);
    const tolerances near = near_of[run->storage];
    bool same = fabs(got.validation / expected.validation - 1) < near.loss &&
                small_training_distance(&t, &got, &expected) < near.weights;
    for (int i = 0; i < SMALL_TRAINING_STEPS; i++)
        same = same && fabs(got.losses[i] / expected.losses[i] - 1) < near.loss &&
               fabs(got.norms[i] / expected.norms[i] - 1) < near.norm;
    if (!same)
        fail_msg(
            "%s, %s, %s, %d ranks, recompute %d, prefetch %d, batch %d, reduce each %d, unit %d: weights differ by %g",
            run->strategy, model_family_name(t.shape.family), dtype_name(run->storage), t.ranks, (int)t.recompute,
            t.prefetch, (int)t.global_batch, (int)t.reduce_each, (int)t.unit_blocks,
            small_training_distance(&t, &got, &expected));
    free(got.weights);
    free(expected.weights);
}

static void every_pair_of_choices_agrees_with_one_rank(void **state) {
    (void)state;
    int count;
    const matrix_run *runs = matrix_runs(&count);
    for (int i = 0; i < count; i++)
        compare(&runs[i]);
    print_message("%d runs cover every possible pair of choices\n", count);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_pair_of_choices_agrees_with_one_rank)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
