#include "engine/device/cpu/pool.h"

#include "engine/checked.h"
#include "engine/device/cpu/flush.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Looks before a thread goes to sleep: some tens of microseconds, about what waking it up costs. Longer would take the
 * core from another rank where ranks outnumber cores. */
enum { SPINS = 1000 };

/* A ticket is a job number in the upper half and the next tile of that job in the lower half. A thread that moves the
 * ticket on by one owns the tile that it saw, and knows that the job's fields, which it read before, belong to that
 * job: the caller closes the old job's ticket before it changes them. So the caller waits for tiles, not for threads,
 * and one that oversleeps a job never delays it. */
#define CLOSED UINT32_MAX

typedef struct worker {
    pool *pool;
    pthread_t id;
    int thread;
} worker;

struct pool {
    int threads, started;
    worker *workers; /* [threads - 1]: threads 1, 2, ...; the first `started` of them run */

    _Alignas(64) _Atomic uint64_t ticket;
    _Atomic uint32_t tiles;
    _Atomic(pool_tile *) tile;
    _Atomic(void *) context;
    _Alignas(64) _Atomic uint32_t finished; /* tiles of the current job */

    _Alignas(64) _Atomic int sleeping; /* workers that wait for `news` */
    _Atomic bool caller_sleeping;
    _Atomic bool stop;
    pthread_mutex_t lock;
    pthread_cond_t news, done;
};

static inline void pause_briefly(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("yield");
#endif
}

static uint32_t job_of(uint64_t ticket) {
    return (uint32_t)(ticket >> 32);
}

static uint32_t tile_of(uint64_t ticket) {
    return (uint32_t)ticket;
}

static bool bind_thread(pthread_t thread, int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (core < 0 || core >= CPU_SETSIZE)
        return false;
    CPU_SET(core, &set);
    return pthread_setaffinity_np(thread, sizeof set, &set) == 0;
}

static void report_finished(pool *p, uint32_t tiles) {
    if (atomic_fetch_add(&p->finished, 1) + 1 < tiles)
        return;
    if (atomic_load(&p->caller_sleeping)) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_signal(&p->done);
        pthread_mutex_unlock(&p->lock);
    }
}

/* Takes tiles of the current job until none is left; returns the number of the job that it looked at last. */
static uint32_t work(pool *p, int thread) {
    uint64_t ticket = atomic_load(&p->ticket);
    for (;;) {
        uint32_t tiles = atomic_load(&p->tiles);
        pool_tile *tile = atomic_load(&p->tile);
        void *context = atomic_load(&p->context);
        if (tile_of(ticket) >= tiles)
            return job_of(ticket);
        if (!atomic_compare_exchange_weak(&p->ticket, &ticket, ticket + 1))
            continue;
        tile(context, tile_of(ticket), thread);
        report_finished(p, tiles);
        ticket = atomic_load(&p->ticket);
    }
}

static bool has_news(pool *p, uint32_t seen) {
    return job_of(atomic_load(&p->ticket)) != seen || atomic_load(&p->stop);
}

static void wait_for_job(pool *p, uint32_t seen) {
    for (int i = 0; i < SPINS; i++) {
        if (has_news(p, seen))
            return;
        pause_briefly();
    }
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->sleeping, 1);
    while (!has_news(p, seen))
        pthread_cond_wait(&p->news, &p->lock);
    atomic_fetch_sub(&p->sleeping, 1);
    pthread_mutex_unlock(&p->lock);
}

static void *worker_main(void *argument) {
    worker *w = argument;
    flush_subnormals();
    uint32_t seen = 0;
    while (!atomic_load(&w->pool->stop)) {
        wait_for_job(w->pool, seen);
        seen = work(w->pool, w->thread);
    }
    return NULL;
}

static void wait_until_done(pool *p, uint32_t tiles) {
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load(&p->finished) == tiles)
            return;
        pause_briefly();
    }
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->caller_sleeping, true);
    while (atomic_load(&p->finished) < tiles)
        pthread_cond_wait(&p->done, &p->lock);
    atomic_store(&p->caller_sleeping, false);
    pthread_mutex_unlock(&p->lock);
}

static void publish_job(pool *p, uint32_t tiles, pool_tile *tile, void *context) {
    uint32_t job = job_of(atomic_load(&p->ticket));
    atomic_store(&p->ticket, (uint64_t)job << 32 | CLOSED);
    atomic_store(&p->finished, 0);
    atomic_store(&p->tiles, tiles);
    atomic_store(&p->tile, tile);
    atomic_store(&p->context, context);
    atomic_store(&p->ticket, (uint64_t)(job + 1) << 32);
    if (atomic_load(&p->sleeping) > 0) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->news);
        pthread_mutex_unlock(&p->lock);
    }
}

void pool_run(pool *p, int64_t tiles, pool_tile *tile, void *context) {
    check(tiles >= 0 && tiles < UINT32_MAX, "%lld tiles", (long long)tiles);
    if (p->threads == 1 || tiles <= 1) {
        for (int64_t i = 0; i < tiles; i++)
            tile(context, i, 0);
        return;
    }
    publish_job(p, (uint32_t)tiles, tile, context);
    work(p, 0);
    wait_until_done(p, (uint32_t)tiles);
}

int pool_threads(const pool *p) {
    return p->threads;
}

static bool start_worker(pool *p, int thread, error *e) {
    worker *w = &p->workers[thread - 1];
    *w = (worker){.pool = p, .thread = thread};
    int failed = pthread_create(&w->id, NULL, worker_main, w);
    if (failed != 0)
        return error_set_own(e, EXIT_LAUNCH, "cannot start thread %d of %d: %s; lower [device] threads", thread + 1,
                             p->threads, strerror(failed));
    p->started++;
    return true;
}

static bool bind_threads(pool *p, const int *cores, error *e) {
    for (int thread = 0; thread < p->threads; thread++) {
        pthread_t id = thread == 0 ? pthread_self() : p->workers[thread - 1].id;
        if (!bind_thread(id, cores[thread]))
            return error_set_own(e, EXIT_LAUNCH,
                                 "cannot bind thread %d of %d to core %d: the core does not exist or "
                                 "is not allowed to this process",
                                 thread + 1, p->threads, cores[thread]);
    }
    return true;
}

bool pool_create(int threads, const int *cores, pool **created, error *e) {
    check(threads >= 1, "%d threads", threads);
    pool *p = aligned_alloc(_Alignof(pool), sizeof *p);
    check(p != NULL, "out of host memory for a pool");
    *p = (pool){.threads = threads, .workers = memory_allocate((size_t)threads, sizeof(worker)), .ticket = CLOSED};
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->news, NULL);
    pthread_cond_init(&p->done, NULL);
    flush_subnormals();
    bool fine = true;
    for (int thread = 1; fine && thread < threads; thread++)
        fine = start_worker(p, thread, e);
    if (!fine || (cores != NULL && !bind_threads(p, cores, e))) {
        pool_destroy(p);
        return false;
    }
    *created = p;
    return true;
}

void pool_destroy(pool *p) {
    if (p == NULL)
        return;
    atomic_store(&p->stop, true);
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->news);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->started; i++)
        pthread_join(p->workers[i].id, NULL);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->news);
    pthread_mutex_destroy(&p->lock);
    free(p->workers);
    free(p);
}
