/* Collectives and the exchanges of a world, among threads of this process (comm/loopback.h). */
#include "comm/loopback.h"
#include "comm/patience.h"
#include "engine/checked.h"
#include "support/collective_checks.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* What one rank does; false with an error, which the test then looks at. cmocka's assertions are for the main thread.
 */
typedef struct rank {
    loopback *loopback;
    int number;
    bool (*act)(world *w, error *e);
    bool fine;
    error error;
    double seconds;
} rank;

static void *be_rank(void *argument) {
    rank *r = argument;
    world w;
    double begun = patience_clock();
    loopback_world(r->loopback, r->number, &w);
    r->fine = r->act(&w, &r->error);
    r->seconds = patience_clock() - begun;
    world_close(&w);
    return NULL;
}

static rank *act(int ranks, bool (*what)(world *w, error *e)) {
    rank *all = memory_allocate((size_t)ranks, sizeof *all);
    pthread_t *threads = memory_allocate((size_t)ranks, sizeof *threads);
    loopback *l = loopback_create(ranks);
    for (int r = 0; r < ranks; r++) {
        all[r] = (rank){.loopback = l, .number = r, .act = what};
        assert_int_equal(pthread_create(&threads[r], NULL, be_rank, &all[r]), 0);
    }
    for (int r = 0; r < ranks; r++)
        pthread_join(threads[r], NULL);
    loopback_destroy(l);
    free(threads);
    return all;
}

static void act_well(int ranks, bool (*what)(world *w, error *e)) {
    rank *all = act(ranks, what);
    for (int r = 0; r < ranks; r++)
        if (!all[r].fine)
            fail_msg("rank %d of %d: %s", r, ranks, all[r].error.message);
    free(all);
}

/* All ranks come back with the same error, soon. */
static void act_badly(int ranks, bool (*what)(world *w, error *e), const char *const *words) {
    rank *all = act(ranks, what);
    for (int r = 0; r < ranks; r++) {
        assert_false(all[r].fine);
        assert_int_equal(all[r].error.code, EXIT_LAUNCH);
        assert_string_equal(all[r].error.message, all[0].error.message);
        assert_true(all[r].seconds < 3); /* a second of time-out, and a loaded machine */
        for (const char *const *word = words; *word != NULL; word++)
            if (strstr(all[r].error.message, *word) == NULL)
                fail_msg("\"%s\" is not in: %s", *word, all[r].error.message);
    }
    free(all);
}

/* --- The world --- */

static bool exchange(world *w, error *e) {
    int64_t mine = w->rank * 10, all[8], broadcast = w->rank;
    world_all_gather(w, &mine, sizeof mine, all);
    for (int r = 0; r < w->size; r++)
        if (all[r] != r * 10)
            return error_set_own(e, EXIT_INTERNAL, "all_gather: %lld from rank %d", (long long)all[r], r);
    world_broadcast(w, &broadcast, sizeof broadcast, w->size - 1);
    int64_t received = -1;
    double maximum = world_maximum(w, -w->rank);
    if (w->rank > 0)
        world_send(w, &mine, sizeof mine, w->rank - 1);
    if (w->rank < w->size - 1)
        world_receive(w, &received, sizeof received, w->rank + 1);
    if (!world_agree(w, e))
        return false;
    if (broadcast != w->size - 1 || maximum > 0 || maximum < 0 || (w->rank < w->size - 1 && received != mine + 10))
        return error_set_own(e, EXIT_INTERNAL, "broadcast %lld, maximum %g, received %lld", (long long)broadcast,
                             maximum, (long long)received);
    return true;
}

static void test_world(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= 8; ranks++)
        act_well(ranks, exchange);
}

static bool two_fail(world *w, error *e) {
    if (w->rank == 2)
        error_set_own(e, EXIT_LAUNCH, "disk full");
    if (w->rank == 3)
        error_set(e, EXIT_DATA, "later rank");
    return world_agree(w, e);
}

static void test_agree_takes_the_lowest_rank(void **state) {
    (void)state;
    act_badly(4, two_fail, (const char *const[]){"rank 2 (", "): disk full", NULL});
}

/* --- Collectives --- */

static bool check_one_thread(world *w, error *e) {
    return collective_checks(w, TRANSPORT_AUTO, 1, 3, e);
}

static bool check_two_threads(world *w, error *e) {
    return collective_checks(w, TRANSPORT_WINDOW, 2, 2, e);
}

static void test_kinds(void **state) {
    (void)state;
    static const int ranks[] = {1, 2, 3, 4, 5, 8};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
        act_well(ranks[i], check_one_thread);
}

static void test_threads(void **state) {
    (void)state;
    act_well(2, check_two_threads);
    act_well(3, check_two_threads);
}

static bool many_steps(world *w, error *e) {
    gathers g;
    bool fine = gathers_open(w, TRANSPORT_AUTO, 4, 5, 60, &g, e);
    for (int step = 0; fine && step < 3000; step++) {
        for (int32_t i = 0; i < 4; i++) {
            float *input = (float *)(void *)((char *)g.memory.base + i * round_up(20 * (w->size + 1), 256));
            for (int k = 0; k < 5; k++)
                input[k] = (float)(step * 100 + w->rank * 10 + i);
            collectives_issue(g.collectives, i);
        }
        fine = collectives_finish(g.collectives, e);
        for (int32_t i = 0; fine && i < 4; i++) {
            const float *output = (float *)(void *)((char *)g.memory.base + i * round_up(20 * (w->size + 1), 256)) + 5;
            for (int k = 0; fine && k < 5 * w->size; k++)
                if (output[k] < (float)(step * 100 + k / 5 * 10 + i) ||
                    output[k] > (float)(step * 100 + k / 5 * 10 + i))
                    fine = error_set_own(e, EXIT_INTERNAL, "step %d: found %g", step, (double)output[k]);
        }
    }
    world_barrier(w);
    gathers_close(&g);
    return fine;
}

static void test_many_steps(void **state) {
    (void)state;
    act_well(3, many_steps);
}

/* Ranks fail in the second of four gathers: `last_fails` says how the last rank behaves. */
static bool meet_failure(world *w, double timeout, bool (*last)(world *w, gathers *g, error *e), error *e) {
    gathers g;
    bool fine = gathers_open(w, TRANSPORT_AUTO, 4, 100, timeout, &g, e);
    collectives_issue(g.collectives, 0);
    if (fine && w->rank == w->size - 1) {
        fine = collectives_complete(g.collectives, 0, 0, e) && last(w, &g, e);
    } else if (fine) {
        collectives_issue(g.collectives, 1);
        fine = collectives_complete(g.collectives, 1, 0, e);
    }
    bool agreed = world_agree(w, e);
    gathers_close(&g);
    return fine || agreed; /* neither may be */
}

static bool never_issues(world *w, gathers *g, error *e) {
    (void)w;
    usleep(1500000); /* longer than the time-out */
    collectives_issue(g->collectives, 1);
    return collectives_complete(g->collectives, 1, 0, e);
}

static bool late_rank(world *w, error *e) {
    return meet_failure(w, 0.5, never_issues, e);
}

static void test_time_out(void **state) {
    (void)state;
    act_badly(
        3, late_rank,
        (const char *const[]){"[shard] timeout = 0.5 seconds; missing rank 2: stuck",
                              "\n  ranks 0-1          waits in step 1, gather 1 (2 of 4 in launch order); missing "
                              "ranks: 2",
                              "\n  rank  2            came later, to step 1, gather 1 (2 of 4", NULL});
}

static bool runs_out_of_disk(world *w, gathers *g, error *e) {
    (void)w;
    usleep(100000);
    error_set_own(e, EXIT_LAUNCH, "disk full");
    collectives_fail(g->collectives, e);
    return false;
}

static bool failing_rank(world *w, error *e) {
    return meet_failure(w, 60, runs_out_of_disk, e);
}

static void test_failure_reaches_all(void **state) {
    (void)state;
    act_badly(4, failing_rank, (const char *const[]){"rank 3 (", "): disk full", NULL});
}

static bool other_list(world *w, error *e) {
    gathers g;
    bool fine = gathers_open(w, TRANSPORT_AUTO, 2, w->rank == 1 ? 11 : 12, 60, &g, e);
    gathers_close(&g);
    return fine;
}

static void test_lists_that_differ(void **state) {
    (void)state;
    act_badly(
        3, other_list,
        (const char *const[]){"rank 1 planned another step than rank 0: collective 1 in launch order is gather 0 (11 "
                              "elements) there and gather 0 (12 elements) on rank 0;",
                              NULL});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_world),
        cmocka_unit_test(test_agree_takes_the_lowest_rank),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_many_steps),
        cmocka_unit_test(test_time_out),
        cmocka_unit_test(test_failure_reaches_all),
        cmocka_unit_test(test_lists_that_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
