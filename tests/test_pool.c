#include "engine/checked.h"
#include "engine/device/cpu/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TILES = 1000, THREADS = 5 };

static pool *pool_of(int threads) {
    error e = {0};
    pool *p = NULL;
    assert_true(pool_create(threads, NULL, &p, &e));
    assert_int_equal(pool_threads(p), threads);
    return p;
}

typedef struct counts {
    _Atomic int tile[TILES], thread[THREADS];
    _Atomic int strange; /* tiles or threads out of range */
} counts;

static void count_tile(void *context, int64_t tile, int thread) {
    counts *c = context;
    if (tile < 0 || tile >= TILES || thread < 0 || thread >= THREADS) {
        c->strange++;
        return;
    }
    c->tile[tile]++;
    c->thread[thread]++;
}

static void every_tile_is_executed_once(void **state) {
    (void)state;
    const int64_t sizes[] = {0, 1, 2, 3, 7, 64, 999, TILES};
    for (int threads = 1; threads <= THREADS; threads++) {
        pool *p = pool_of(threads);
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            for (int repeat = 0; repeat < 50; repeat++) {
                counts c;
                memset(&c, 0, sizeof c);
                pool_run(p, sizes[s], count_tile, &c);
                assert_int_equal(c.strange, 0);
                for (int64_t i = 0; i < TILES; i++)
                    assert_int_equal(c.tile[i], i < sizes[s]);
                for (int i = threads; i < THREADS; i++)
                    assert_int_equal(c.thread[i], 0);
            }
        }
        pool_destroy(p);
    }
}

/* Jobs of different sizes right behind each other, on more threads than there are cores: a thread that comes late to
 * one job must not take a tile of the next with the old job's function. */
typedef struct numbered {
    _Atomic int64_t sum;
    int64_t number;
} numbered;

static void add_number(void *context, int64_t tile, int thread) {
    (void)thread;
    numbered *n = context;
    n->sum += n->number * (tile + 1);
}

static void jobs_do_not_mix(void **state) {
    (void)state;
    pool *p = pool_of(8);
    for (int64_t job = 0; job < 20000; job++) {
        numbered n = {.number = job};
        int64_t tiles = 2 + job % 13;
        pool_run(p, tiles, add_number, &n);
        assert_int_equal(n.sum, job * tiles * (tiles + 1) / 2);
    }
    pool_destroy(p);
}

static void sleep_a_while(void) {
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

static void note_thread(void *context, int64_t tile, int thread) {
    (void)tile;
    _Atomic bool *seen = context;
    seen[thread] = true;
    sleep_a_while();
}

static void sleeping_threads_are_woken(void **state) {
    (void)state;
    pool *p = pool_of(3);
    for (int repeat = 0; repeat < 5; repeat++) {
        sleep_a_while(); /* longer than threads spin */
        _Atomic bool seen[3] = {false};
        pool_run(p, 30, note_thread, seen);
        for (int i = 0; i < 3; i++)
            assert_true(seen[i]);
    }
    pool_destroy(p);
}

/* Waits until every thread has a tile, so that each thread's arithmetic is seen. */
typedef struct arithmetic {
    _Atomic int arrived;
    float product[THREADS], sum[THREADS];
} arithmetic;

static void compute_subnormals(void *context, int64_t tile, int thread) {
    (void)tile;
    arithmetic *a = context;
    volatile float smallest = 0x1p-126f, half = 0.5f, subnormal = 0x1p-130f, zero = 0.0f;
    a->product[thread] = smallest * half;
    a->sum[thread] = subnormal + zero;
    a->arrived++;
    while (a->arrived < THREADS)
        sched_yield();
}

static void subnormals_are_flushed_in_every_thread(void **state) {
    (void)state;
    pool *p = pool_of(THREADS);
    arithmetic a = {0};
    for (int i = 0; i < THREADS; i++)
        a.product[i] = a.sum[i] = 1.0f;
    pool_run(p, THREADS, compute_subnormals, &a);
    uint32_t zero = 0;
    for (int i = 0; i < THREADS; i++) { /* by bits: a comparison would flush, too */
        assert_memory_equal(&a.product[i], &zero, sizeof zero);
        assert_memory_equal(&a.sum[i], &zero, sizeof zero);
    }
    pool_destroy(p);
}

typedef struct places {
    _Atomic int arrived;
    int threads;
    int cores[2];
} places;

static void note_core(void *context, int64_t tile, int thread) {
    (void)tile;
    places *where = context;
    where->arrived++;
    while (where->arrived < where->threads)
        sched_yield();
    where->cores[thread] = sched_getcpu();
}

static void threads_are_bound(void **state) {
    (void)state;
    cpu_set_t before;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    int core = 0;
    while (!CPU_ISSET(core, &before))
        core++;
    pool *p = NULL;
    error e = {0};
    assert_true(pool_create(2, (int[]){core, core}, &p, &e));
    places where = {.threads = 2, .cores = {-1, -1}};
    pool_run(p, 2, note_core, &where);
    assert_int_equal(where.cores[0], core);
    assert_int_equal(where.cores[1], core);
    pool_destroy(p);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

static void a_core_that_does_not_exist_is_refused(void **state) {
    (void)state;
    pool *p = NULL;
    error e = {0};
    assert_false(pool_create(2, (int[]){-1, -1}, &p, &e));
    assert_int_equal(e.code, EXIT_LAUNCH);
    assert_non_null(strstr(e.message, "core -1"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tile_is_executed_once), cmocka_unit_test(jobs_do_not_mix),
        cmocka_unit_test(sleeping_threads_are_woken),  cmocka_unit_test(subnormals_are_flushed_in_every_thread),
        cmocka_unit_test(threads_are_bound),           cmocka_unit_test(a_core_that_does_not_exist_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
