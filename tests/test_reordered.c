/* A rank whose program launches two collectives in the other order is refused before the first step, with the first
 * entry that differs: for the programs of the matrix, every rank in turn being the one that differs. (What would happen
 * else is that ranks wait for each other, or take each other's bytes.) */
#include "comm/loopback.h"
#include "engine/checked.h"
#include "engine/run.h"
#include "support/matrix.h"
#include "support/small_programs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAIRS = 3 }; /* of each program */

typedef struct rank {
    loopback *ranks;
    const small_program *of;
    int rank;
    int32_t pair; /* the collective that changes places with the next; -1: none does */
    bool started;
    error error;
    pthread_t thread;
} rank;

/* The operation that is collective number `number`; -1: there are fewer. */
static int32_t find_collective(const program *p, int32_t number) {
    for (int32_t i = 0; i < p->operation_count; i++)
        if (operation_is_collective(p->operations[i].kind) && number-- == 0)
            return i;
    return -1;
}

static int32_t count_collectives(const program *p) {
    int32_t count = 0;
    while (find_collective(p, count) >= 0)
        count++;
    return count;
}

static void swap(program *p, int32_t pair) {
    operation *a = &p->operations[find_collective(p, pair)], *b = &p->operations[find_collective(p, pair + 1)];
    const operation kept = *a;
    *a = *b;
    *b = kept;
}

static void *start(void *argument) {
    rank *r = argument;
    step *s = small_program_build(r->of);
    const device_settings one_thread = {.threads = 1};
    const run_settings settings = {.mesh = {r->rank, r->of->ranks, r->of->group}, .timeout_seconds = 60};
    device_memory arena;
    device *d = NULL;
    run *created = NULL;
    world w;
    loopback_world(r->ranks, r->rank, &w);
    if (r->pair >= 0)
        swap(s->program, r->pair);
    check(device_cpu.open(&one_thread, &d, &r->error) &&
              device_cpu.allocate(d, (size_t)s->program->arena_bytes, &arena, &r->error),
          "%s", r->error.message);
    r->started = run_create(s->program, &w, d, &arena, &settings, &created, &r->error);
    run_destroy(created);
    world_close(&w);
    device_cpu.release(d, &arena);
    device_cpu.close(d);
    step_destroy(s);
    return NULL;
}

/* Ranks of which `other` has swapped a pair. */
static void launch_ranks(const small_program *of, int other, int32_t pair, rank *all) {
    loopback *l = loopback_create(of->ranks);
    for (int r = 0; r < of->ranks; r++) {
        all[r] = (rank){.ranks = l, .of = of, .rank = r, .pair = r == other ? pair : -1};
        assert_int_equal(pthread_create(&all[r].thread, NULL, start, &all[r]), 0);
    }
    for (int r = 0; r < of->ranks; r++)
        pthread_join(all[r].thread, NULL);
    loopback_destroy(l);
}

static void check_pair(const small_program *of, const char *what, int other, int32_t pair) {
    rank all[8];
    char expected[64];
    snprintf(expected, sizeof expected, "collective %d in launch order is ", pair + 1);
    launch_ranks(of, other, pair, all);
    for (int r = 0; r < of->ranks; r++) {
        if (all[r].started)
            fail_msg("%s: rank %d starts though rank %d has collectives %d and %d swapped", what, r, other, pair + 1,
                     pair + 2);
        if (strstr(all[r].error.message, expected) == NULL)
            fail_msg("%s: rank %d does not say \"%s\" but: %s", what, r, expected, all[r].error.message);
    }
}

static void reordered_collectives_are_refused(void **state) {
    (void)state;
    int count = 0, refused = 0;
    const matrix_run *runs = matrix_runs(&count);
    for (int i = 0; i < count; i++) {
        const small_program of = small_program_of(&runs[i]);
        if (of.ranks == 1)
            continue;
        step *s = small_program_build(&of);
        const int32_t collectives = count_collectives(s->program);
        step_destroy(s);
        rank all[8];
        launch_ranks(&of, 0, -1, all);
        for (int r = 0; r < of.ranks; r++)
            if (!all[r].started)
                fail_msg("%s: the program as it is: %s", runs[i].strategy, all[r].error.message);
        for (int k = 0; k < PAIRS; k++, refused++)
            check_pair(&of, runs[i].strategy, (i + k) % of.ranks,
                       (7 * i + k * collectives / PAIRS) % (collectives - 1));
    }
    printf("%d of %d programs with collectives reordered on one rank refused, the entry named\n", refused, refused);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(reordered_collectives_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
