/* Timelines of training over loopback ranks, and the clocks that they are drawn by. */
#include "comm/clock.h"
#include "comm/loopback.h"
#include "engine/checked.h"
#include "support/folder.h"
#include "support/small_training.h"
#include "support/timeline.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static const small_training base = {.ranks = 3,
                                    .group = 3,
                                    .threads = 1,
                                    .prefetch = 1,
                                    .reduce_each = true,
                                    .unit_blocks = 1,
                                    .global_batch = 6,
                                    .micro_batch = 1,
                                    .sequence = 9,
                                    .trace_folder = "."};

static void check_training(small_training t) {
    timeline_facts facts = {0};
    error e = {0};
    t.shape = small_shape(FAMILY_LLAMA, false);
    small_result result = small_training_run(&t);
    free(result.weights);
    if (!timeline_check("trace.json", t.ranks, 2, 3, &facts, &e))
        fail_msg("%s", e.message);
    assert_true(facts.slices > 2 * t.ranks * 100);
    assert_true(facts.arrows > 0 && facts.exposed > 0);
    assert_int_equal(facts.collectives > 0, t.ranks > 1); /* one rank's program has none */
}

static void sharded(void **state) {
    (void)state;
    check_training(base);
}

static void hybrid_with_gathers_far_ahead(void **state) {
    (void)state;
    small_training t = base;
    t.ranks = 4;
    t.group = 2;
    t.global_batch = 8;
    t.prefetch = 3;
    check_training(t);
}

static void one_rank(void **state) {
    (void)state;
    small_training t = base;
    t.ranks = t.group = 1;
    t.reduce_each = false;
    check_training(t);
}

static void measuring_changes_nothing(void **state) {
    (void)state;
    small_training t = base, plain = base;
    t.shape = plain.shape = small_shape(FAMILY_LLAMA, false);
    plain.trace_folder = NULL;
    small_result traced = small_training_run(&t), untraced = small_training_run(&plain);
    assert_memory_equal(traced.losses, untraced.losses, sizeof traced.losses);
    assert_memory_equal(traced.weights, untraced.weights, (size_t)traced.elements * sizeof *traced.weights);
    free(traced.weights);
    free(untraced.weights);
}

/* ---- clocks ---- */

enum { CLOCK_RANKS = 4 };
static const int nodes_of_ranks[CLOCK_RANKS] = {0, 1, 0, 2};

typedef struct clock_rank {
    loopback *loopback;
    int number;
    clock_offset offset;
} clock_rank;

/* The ranks are threads and have one clock, which they do not know when they are said to be on three nodes. */
static void *compare_clocks(void *argument) {
    clock_rank *r = argument;
    world w;
    loopback_world(r->loopback, r->number, &w);
    world seen = w;
    seen.node_of = nodes_of_ranks;
    seen.node = nodes_of_ranks[r->number];
    seen.nodes = 3;
    r->offset = clock_compare(&seen);
    world_close(&w);
    return NULL;
}

static void clocks_are_compared(void **state) {
    (void)state;
    clock_rank ranks[CLOCK_RANKS];
    pthread_t threads[CLOCK_RANKS];
    loopback *l = loopback_create(CLOCK_RANKS);
    for (int r = 0; r < CLOCK_RANKS; r++) {
        ranks[r] = (clock_rank){.loopback = l, .number = r};
        assert_int_equal(pthread_create(&threads[r], NULL, compare_clocks, &ranks[r]), 0);
    }
    for (int r = 0; r < CLOCK_RANKS; r++)
        pthread_join(threads[r], NULL);
    loopback_destroy(l);
    for (int r = 0; r < CLOCK_RANKS; r++) {
        const clock_offset found = ranks[r].offset;
        const bool here = nodes_of_ranks[r] == 0;
        assert_true(fabs(found.seconds) <= found.error);
        assert_true(here ? found.error <= 0 : found.error > 0 && found.error < 0.1); /* a loaded machine */
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_IN_FOLDER(sharded),
        TEST_IN_FOLDER(hybrid_with_gathers_far_ahead),
        TEST_IN_FOLDER(one_rank),
        TEST_IN_FOLDER(measuring_changes_nothing),
        cmocka_unit_test(clocks_are_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
