/* Training over loopback ranks: every world size, strategy and schedule gives the losses and weights of one rank. */
#include "launch/config.h"
#include "support/small_training.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static small_training alone(model_family family, bool tied, int64_t global_batch, int64_t micro_batch) {
    return (small_training){.shape = small_shape(family, tied),
                            .ranks = 1,
                            .group = 1,
                            .threads = 1,
                            .prefetch = 1,
                            .reduce_each = true,
                            .unit_blocks = 1,
                            .global_batch = global_batch,
                            .micro_batch = micro_batch,
                            .sequence = 19};
}

static double relative(double a, double b) {
    return fabs(a - b) / (fabs(b) + 1e-30);
}

/* fp32 sums in another order: a loss of about 4 is an average of hundreds of terms of relative error 6e-8 each; a
 * gradient entry near zero can lose most of its digits, and AdamW's first steps move its weight by the full rate. */
static void assert_same(const small_training *t, const small_result *got, const small_result *expected,
                        const char *what) {
    for (int i = 0; i < SMALL_TRAINING_STEPS; i++) {
        if (relative(got->losses[i], expected->losses[i]) > 1e-6 || relative(got->norms[i], expected->norms[i]) > 1e-5)
            fail_msg("%s: step %d: loss %.9g, expected %.9g; norm %.9g, expected %.9g", what, i, got->losses[i],
                     expected->losses[i], got->norms[i], expected->norms[i]);
    }
    if (relative(got->validation, expected->validation) > 1e-6)
        fail_msg("%s: validation loss %.9g, expected %.9g", what, got->validation, expected->validation);
    const double distance = small_training_distance(t, got, expected);
    if (!(distance < 1e-5))
        fail_msg("%s: weights differ by %g", what, distance);
}

static void assert_same_bits(const small_result *got, const small_result *expected, const char *what) {
    if (memcmp(got->losses, expected->losses, sizeof got->losses) != 0 ||
        memcmp(got->weights, expected->weights, (size_t)got->elements * sizeof *got->weights) != 0)
        fail_msg("%s: bits differ", what);
}

/* The strategies of the design, and both mixtures of its settings that have no name. */
typedef struct strategy {
    const char *name;
    int groups; /* shard groups; 0: one rank each */
    bool keep_gathered, reduce_each;
} strategy;

static const strategy strategies[] = {
    {"full", 1, false, true},      {"gradients", 1, true, true},
    {"optimizer", 1, true, false}, {"none", 0, true, false},
    {"none, each", 0, true, true}, {"full, reduced last", 1, false, false},
    {"hybrid", 2, false, true},    {"hybrid, kept, reduced last", 2, true, false},
};

static void compare_ranks(model_family family, bool tied, const int *ranks, int count, int64_t global_batch,
                          int64_t micro_batch) {
    small_training t = alone(family, tied, global_batch, micro_batch);
    const small_result expected = small_training_run(&t);
    for (int i = 0; i < count; i++)
        for (size_t k = 0; k < sizeof strategies / sizeof *strategies; k++) {
            const strategy *way = &strategies[k];
            char what[128];
            if ((way->groups > 1 && ranks[i] % way->groups != 0) || (way->groups == 0 && way->reduce_each))
                continue;
            t.ranks = ranks[i];
            t.group = way->groups == 0 ? 1 : ranks[i] / way->groups;
            t.keep_gathered = way->keep_gathered;
            t.reduce_each = way->reduce_each;
            small_result got = small_training_run(&t);
            snprintf(what, sizeof what, "%s, %s head, %d ranks, %s", model_family_name(family),
                     tied ? "tied" : "untied", ranks[i], way->name);
            assert_same(&t, &got, &expected, what);
            free(got.weights);
        }
    free(expected.weights);
}

static void world_sizes_agree(void **state) {
    (void)state;
    compare_ranks(FAMILY_GPT2, true, (int[]){2, 3, 4}, 3, 12, 1);
    compare_ranks(FAMILY_LLAMA, false, (int[]){2, 3, 4}, 3, 12, 1);
    compare_ranks(FAMILY_GPT2, false, (int[]){5, 8}, 2, 40, 1);
    compare_ranks(FAMILY_LLAMA, true, (int[]){5, 8}, 2, 40, 1);
}

/* More ranks than granules in most units: empty shards. */
static void many_ranks_agree(void **state) {
    (void)state;
    compare_ranks(FAMILY_LLAMA, false, (int[]){31}, 1, 31, 1);
}

static void one_token_agrees(void **state) {
    (void)state;
    small_training t = alone(FAMILY_LLAMA, true, 2, 1);
    t.sequence = 1;
    const small_result expected = small_training_run(&t);
    t.ranks = t.group = 2;
    small_result got = small_training_run(&t);
    assert_same(&t, &got, &expected, "one token");
    free(got.weights);
    free(expected.weights);
}

/* What a schedule changes is when, never what: prefetch, units and threads leave every bit alone. */
static void schedules_keep_bits(void **state) {
    (void)state;
    for (int family = 0; family < FAMILY_COUNT; family++) {
        small_training t = alone((model_family)family, family == FAMILY_LLAMA, 6, 1);
        t.ranks = t.group = 2;
        const small_result expected = small_training_run(&t);
        const struct { int prefetch, threads; } variants[] = {{0, 1}, {3, 1}, {1, 2}, {100, 3}};
        for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
            t.prefetch = variants[i].prefetch;
            t.threads = variants[i].threads;
            small_result got = small_training_run(&t);
            char what[64];
            snprintf(what, sizeof what, "prefetch %d, %d threads", t.prefetch, t.threads);
            assert_same_bits(&got, &expected, what);
            free(got.weights);
        }
        free(expected.weights);
    }
}

/* The list is one of many orders that its streams and waits allow: all give the same bits. */
static void any_order_keeps_bits(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof strategies / sizeof *strategies; k++) {
        const strategy *way = &strategies[k];
        small_training t = alone(k % 2 == 0 ? FAMILY_LLAMA : FAMILY_GPT2, k % 3 == 0, 8, 1);
        t.ranks = 4;
        t.group = way->groups == 0 ? 1 : 4 / way->groups;
        t.keep_gathered = way->keep_gathered;
        t.reduce_each = way->reduce_each;
        t.reproducible = way->groups == 0 && way->reduce_each;
        t.recompute = k % 2 == 0 ? RECOMPUTE_NONE : RECOMPUTE_BLOCK;
        const small_result expected = small_training_run(&t);
        for (t.order_seed = 1; t.order_seed <= 4; t.order_seed++) {
            small_result got = small_training_run(&t);
            assert_same_bits(&got, &expected, way->name);
            free(got.weights);
        }
        free(expected.weights);
    }
}

static void reproducible_at(model_family family, const int *ranks, int count, int64_t global_batch) {
    small_training t = alone(family, family == FAMILY_GPT2, global_batch, 1);
    t.reproducible = true;
    t.ranks = t.group = ranks[0];
    const small_result expected = small_training_run(&t);
    for (int i = 0; i < count; i++)
        for (size_t k = 0; k < sizeof strategies / sizeof *strategies; k++) {
            const strategy *way = &strategies[k];
            char what[128];
            if (!way->reduce_each || (way->groups > 1 && ranks[i] % way->groups != 0))
                continue;
            t.ranks = ranks[i];
            t.group = way->groups == 0 ? 1 : ranks[i] / way->groups;
            t.keep_gathered = way->keep_gathered;
            t.prefetch = i;
            t.recompute = i % 2 == 0 ? RECOMPUTE_NONE : RECOMPUTE_BLOCK;
            small_result got = small_training_run(&t);
            snprintf(what, sizeof what, "reproducible, %s, %d ranks, %s", model_family_name(family), ranks[i],
                     way->name);
            assert_same_bits(&got, &expected, what);
            free(got.weights);
        }
    free(expected.weights);
}

/* World sizes with the same odd part give the same bits, whatever the strategy, prefetch and recomputation. */
static void reproducible_keeps_bits(void **state) {
    (void)state;
    reproducible_at(FAMILY_GPT2, (int[]){1, 2, 4, 8}, 4, 8);
    reproducible_at(FAMILY_LLAMA, (int[]){1, 2, 4, 8}, 4, 24);
    reproducible_at(FAMILY_GPT2, (int[]){3, 6, 12}, 3, 24);
}

/* What is computed again has the bits that it had. */
static void recomputation_keeps_bits(void **state) {
    (void)state;
    for (int family = 0; family < FAMILY_COUNT; family++) {
        small_training t = alone((model_family)family, family == FAMILY_LLAMA, 6, 3);
        t.ranks = t.group = 2;
        const small_result expected = small_training_run(&t);
        const struct {
            recompute_policy policy;
            double share; /* of what recomputing blocks saves */
        } variants[] = {{RECOMPUTE_ATTENTION, 0}, {RECOMPUTE_BLOCK, 0}, {RECOMPUTE_MEMORY, 0.5}, {RECOMPUTE_MEMORY, 1}};
        int64_t before = expected.arena_bytes, least = 0;
        for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
            t.recompute = variants[i].policy;
            t.memory = expected.arena_bytes - (int64_t)((double)(expected.arena_bytes - least) * variants[i].share);
            small_result got = small_training_run(&t);
            assert_same_bits(&got, &expected, "recomputation");
            assert_true(got.arena_bytes < expected.arena_bytes);
            if (variants[i].policy == RECOMPUTE_BLOCK)
                least = got.arena_bytes;
            if (variants[i].policy == RECOMPUTE_MEMORY) {
                assert_true(got.arena_bytes <= t.memory);
                assert_true(got.arena_bytes < before);
                before = got.arena_bytes;
            }
            free(got.weights);
        }
        free(expected.weights);
    }
}

/* Other units have other granules, so the norm is summed in another order. */
static void units_agree(void **state) {
    (void)state;
    small_training t = alone(FAMILY_GPT2, true, 6, 1);
    t.ranks = t.group = 3;
    const small_result expected = small_training_run(&t);
    for (t.unit_blocks = 2; t.unit_blocks <= 4; t.unit_blocks++) {
        small_result got = small_training_run(&t);
        assert_same(&t, &got, &expected, "blocks to a unit");
        free(got.weights);
    }
    free(expected.weights);
}

/* Roundings to 16 bits fall elsewhere when the batch is divided otherwise: fp32 sums in another order are rounded to
 * another neighbour now and then, and what is sent in bf16 is rounded once more, per rank. A roundoff u is 2^-9 in
 * bf16, 2^-12 in fp16; losses and norms average many of them. The weights move by 1e-2 a step of an order of 0.1, in
 * directions that depend on signs of small gradients. */
static void assert_close(const small_training *t, const small_result *got, const small_result *expected, double u,
                         const char *what) {
    for (int i = 0; i < SMALL_TRAINING_STEPS; i++)
        if (relative(got->losses[i], expected->losses[i]) > u || relative(got->norms[i], expected->norms[i]) > 8 * u)
            fail_msg("%s: step %d: loss %.9g, expected %.9g; norm %.9g, expected %.9g", what, i, got->losses[i],
                     expected->losses[i], got->norms[i], expected->norms[i]);
    const double distance = small_training_distance(t, got, expected);
    if (relative(got->validation, expected->validation) > u || !(distance < 16 * u))
        fail_msg("%s: validation loss %.9g, expected %.9g, weights differ by %g", what, got->validation,
                 expected->validation, distance);
}

static const struct stored_case {
    const char *name;
    int compute, communicate;
    double u;
} stored_cases[] = {
    {"bf16", CONFIG_BF16, CONFIG_COMMUNICATE_FP32, 0x1p-9},
    {"bf16, sent in bf16", CONFIG_BF16, CONFIG_COMMUNICATE_BF16, 0x1p-9},
    {"fp16", CONFIG_FP16, CONFIG_COMMUNICATE_FP32, 0x1p-12},
    {"fp16, sent in bf16", CONFIG_FP16, CONFIG_COMMUNICATE_BF16, 0x1p-9},
    {"fp32, sent in bf16", CONFIG_FP32, CONFIG_COMMUNICATE_BF16, 0x1p-9},
};

/* One rank in fp32 is near, though its parameters are not rounded, and every number of ranks is nearer. */
static void storages_agree(void **state) {
    (void)state;
    for (size_t c = 0; c < sizeof stored_cases / sizeof *stored_cases; c++)
        for (size_t k = 0; k < sizeof strategies / sizeof *strategies; k++) {
            const strategy *way = &strategies[k];
            const model_family family = k % 2 == 0 ? FAMILY_GPT2 : FAMILY_LLAMA;
            small_training t = alone(family, family == FAMILY_GPT2, 8, 1);
            char what[128];
            if (way->groups == 0 && way->reduce_each)
                continue;
            const small_result exact = small_training_run(&t);
            t.compute = stored_cases[c].compute;
            t.communicate = stored_cases[c].communicate;
            small_result one = small_training_run(&t);
            snprintf(what, sizeof what, "%s, %s, one rank", stored_cases[c].name, model_family_name(family));
            assert_close(&t, &one, &exact, 2 * stored_cases[c].u, what);
            t.ranks = 4;
            t.group = way->groups == 0 ? 1 : 4 / way->groups;
            t.keep_gathered = way->keep_gathered;
            t.reduce_each = way->reduce_each;
            small_result got = small_training_run(&t);
            snprintf(what, sizeof what, "%s, %s, %s", stored_cases[c].name, model_family_name(family), way->name);
            assert_close(&t, &got, &one, stored_cases[c].u, what);
            free(got.weights);
            free(one.weights);
            free(exact.weights);
        }
}

/* As in fp32: neither ranks, threads, prefetch nor recomputation change a bit. */
static void storages_keep_bits(void **state) {
    (void)state;
    for (int compute = CONFIG_BF16; compute <= CONFIG_FP16; compute++) {
        small_training t = alone(FAMILY_LLAMA, compute == CONFIG_BF16, 8, 1);
        t.compute = compute;
        t.reproducible = true;
        const small_result expected = small_training_run(&t);
        const struct {
            int ranks, group, threads, prefetch;
            recompute_policy recompute;
        } variants[] = {{2, 2, 1, 0, RECOMPUTE_NONE},
                        {4, 2, 2, 1, RECOMPUTE_BLOCK},
                        {8, 8, 1, 3, RECOMPUTE_ATTENTION},
                        {2, 1, 3, 1, RECOMPUTE_NONE}};
        for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
            t.ranks = variants[i].ranks;
            t.group = variants[i].group;
            t.threads = variants[i].threads;
            t.prefetch = variants[i].prefetch;
            t.recompute = variants[i].recompute;
            small_result got = small_training_run(&t);
            assert_same_bits(&got, &expected, compute == CONFIG_BF16 ? "bf16" : "fp16");
            free(got.weights);
        }
        free(expected.weights);
    }
}

/* At any number of ranks: a scale that is too large is halved step by step, without an update; scaling by powers of two
 * leaves no trace in what is computed. */
static void loss_scale_halves_until_gradients_fit(void **state) {
    (void)state;
    small_training t = alone(FAMILY_GPT2, true, 6, 1);
    t.compute = CONFIG_FP16;
    small_result usual = small_training_run(&t);
    for (int i = 0; i < SMALL_TRAINING_STEPS; i++)
        assert_true(usual.loss_scales[i] == 65536 && usual.updated[i]);
    for (t.ranks = 1; t.ranks <= 3; t.ranks++) {
        t.group = t.ranks;
        t.first_loss_scale = 0x1p60;
        small_result large = small_training_run(&t);
        t.first_loss_scale = 0x1p70;
        small_result larger = small_training_run(&t);
        for (int i = 0; i < SMALL_TRAINING_STEPS; i++) {
            assert_true(large.loss_scales[i] == ldexp(0x1p60, -i) && !large.updated[i]);
            assert_true(isfinite(large.losses[i]) && !isfinite(large.norms[i]));
        }
        assert_memory_equal(large.weights, larger.weights, (size_t)large.elements * sizeof *large.weights);
        assert_memory_not_equal(large.weights, usual.weights, (size_t)large.elements * sizeof *large.weights);
        free(larger.weights);
        free(large.weights);
        t.first_loss_scale = 0x1p22; /* too large for the first steps only */
        small_result found = small_training_run(&t);
        for (int i = 1; i < SMALL_TRAINING_STEPS; i++)
            assert_true(found.loss_scales[i] == found.loss_scales[i - 1] / (found.updated[i - 1] ? 1 : 2));
        assert_true(!found.updated[0] && found.updated[SMALL_TRAINING_STEPS - 1]);
        free(found.weights);
    }
    free(usual.weights);
}

static void training_learns(void **state) {
    (void)state;
    const small_training t = alone(FAMILY_LLAMA, false, 8, 4);
    const small_result got = small_training_run(&t);
    assert_true(relative(got.losses[0], log(53)) < 0.1);
    assert_true(got.losses[SMALL_TRAINING_STEPS - 1] < got.losses[0]);
    free(got.weights);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_learns),
        cmocka_unit_test(world_sizes_agree),
        cmocka_unit_test(many_ranks_agree),
        cmocka_unit_test(one_token_agrees),
        cmocka_unit_test(schedules_keep_bits),
        cmocka_unit_test(recomputation_keeps_bits),
        cmocka_unit_test(reproducible_keeps_bits),
        cmocka_unit_test(any_order_keeps_bits),
        cmocka_unit_test(units_agree),
        cmocka_unit_test(storages_agree),
        cmocka_unit_test(storages_keep_bits),
        cmocka_unit_test(loss_scale_halves_until_gradients_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
