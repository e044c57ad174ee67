/* Every pair of choices: strategies, families, ranks, recomputation, prefetch, accumulation, reductions and units in a
 * covering set of runs, each against one rank with the same batch. */
#include "support/small_training.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STRATEGY, FAMILY, RANKS, RECOMPUTE, PREFETCH, PASSES, REDUCE, UNIT, FACTORS };
enum { FULL, GRADIENTS, OPTIMIZER, NONE, HYBRID };
enum { MOST_LEVELS = 5, MOST_RUNS = 200, MEMORY_SHARE = 2 };

static const int levels[FACTORS] = {5, 2, 5, 3, 3, 2, 2, 2};
static const int ranks_of[] = {1, 2, 3, 4, 8}, prefetch_of[] = {0, 1, 3}, passes_of[] = {1, 3};
static const recompute_policy recompute_of[] = {RECOMPUTE_NONE, RECOMPUTE_BLOCK, RECOMPUTE_MEMORY};

/* Hybrid sharding needs an even number of ranks; in groups of one rank there is no reduction each micro-batch. */
static bool possible(const int *row) {
    const int ranks = ranks_of[row[RANKS]];
    const bool one_rank_groups = row[STRATEGY] == NONE || (row[STRATEGY] == HYBRID && ranks == 2);
    return (row[STRATEGY] != HYBRID || ranks % 2 == 0) && !(one_rank_groups && ranks > 1 && row[REDUCE] == 0);
}

/* ---- a covering set: greedy, from all possible rows ---- */

typedef bool pairs[FACTORS][MOST_LEVELS][FACTORS][MOST_LEVELS];

static int uncovered(pairs covered, const int *row) {
    int count = 0;
    for (int a = 0; a < FACTORS; a++)
        for (int b = a + 1; b < FACTORS; b++)
            count += !covered[a][row[a]][b][row[b]];
    return count;
}

static void cover(pairs covered, const int *row) {
    for (int a = 0; a < FACTORS; a++)
        for (int b = a + 1; b < FACTORS; b++)
            covered[a][row[a]][b][row[b]] = true;
}

/* Counts `row` up like digits; false after the last. */
static bool next_row(int *row) {
    for (int f = 0; f < FACTORS; f++) {
        if (++row[f] < levels[f])
            return true;
        row[f] = 0;
    }
    return false;
}

static int covering_set(int rows[MOST_RUNS][FACTORS]) {
    static pairs covered;
    int count = 0;
    for (;;) {
        int row[FACTORS] = {0}, best = 0;
        assert_true(count < MOST_RUNS);
        do {
            const int gain = possible(row) ? uncovered(covered, row) : 0;
            if (gain > best) {
                best = gain;
                memcpy(rows[count], row, sizeof row);
            }
        } while (next_row(row));
        if (best == 0)
            return count;
        cover(covered, rows[count++]);
    }
}

/* ---- runs ---- */

static small_training training_of(const int *row) {
    const int ranks = ranks_of[row[RANKS]], strategy = row[STRATEGY];
    const model_family family = (model_family)row[FAMILY];
    return (small_training){.shape = small_shape(family, family == FAMILY_GPT2),
                            .ranks = ranks,
                            .group = strategy == NONE     ? 1
                                     : strategy == HYBRID ? ranks / 2
                                                          : ranks,
                            .threads = 1,
                            .prefetch = prefetch_of[row[PREFETCH]],
                            .keep_gathered = strategy == GRADIENTS || strategy == OPTIMIZER,
                            .reduce_each = row[REDUCE] == 0,
                            .recompute = recompute_of[row[RECOMPUTE]],
                            .unit_blocks = 1 + row[UNIT],
                            .global_batch = (int64_t)ranks * passes_of[row[PASSES]],
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

/* Tolerances as in test_training.c: fp32 sums in another order. */
static void compare(const int *row) {
    static const char *const strategies[] = {"full", "gradients", "optimizer", "none", "hybrid"};
    small_training t = training_of(row);
    if (t.recompute == RECOMPUTE_MEMORY)
        t.memory = budget_of(t);
    small_result got = small_training_run(&t), expected = alone(t);
    bool same =
        fabs(got.validation / expected.validation - 1) < 1e-6 && small_training_distance(&t, &got, &expected) < 1e-5;
    for (int i = 0; i < SMALL_TRAINING_STEPS; i++)
        same = same && fabs(got.losses[i] / expected.losses[i] - 1) < 1e-6 &&
               fabs(got.norms[i] / expected.norms[i] - 1) < 1e-5;
    if (!same)
        fail_msg("%s, %s, %d ranks, recompute %d, prefetch %d, batch %d, reduce each %d, unit %d: weights differ by %g",
                 strategies[row[STRATEGY]], model_family_name(t.shape.family), t.ranks, (int)t.recompute, t.prefetch,
                 (int)t.global_batch, (int)t.reduce_each, (int)t.unit_blocks,
                 small_training_distance(&t, &got, &expected));
    free(got.weights);
    free(expected.weights);
}

static void every_pair_of_choices_agrees_with_one_rank(void **state) {
    (void)state;
    static int rows[MOST_RUNS][FACTORS];
    const int count = covering_set(rows);
    for (int i = 0; i < count; i++)
        compare(rows[i]);
    print_message("%d runs cover every possible pair of choices\n", count);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_pair_of_choices_agrees_with_one_rank)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
