#include "engine/device/cuda/nccl_init.h"

#include "engine/checked.h"
#include "engine/device/thread.h"

#include <cuda_runtime.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

/* A communicator that a thread makes; of both threads until the one that waits has given up, then of the other. */
typedef struct making {
    nccl_membership of;
    int gpu;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool done, given_up;
    ncclComm_t made;
    ncclResult_t result;
} making;

static void drop(making *m) {
    pthread_cond_destroy(&m->ended);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

static void *make(void *state) {
    making *m = state;
    ncclComm_t made = NULL;
    const ncclResult_t result = cudaSetDevice(m->gpu) == cudaSuccess
                                    ? ncclCommInitRank(&made, m->of.members, m->of.id, m->of.member)
                                    : ncclUnhandledCudaError;
    pthread_mutex_lock(&m->lock);
    m->made = made, m->result = result, m->done = true;
    const bool alone = m->given_up;
    pthread_cond_signal(&m->ended);
    pthread_mutex_unlock(&m->lock);
    if (alone)
        drop(m);
    return NULL;
}

static making *prepare(const nccl_membership *of) {
    making *m = memory_allocate(1, sizeof *m);
    pthread_condattr_t monotonic;
    m->of = *of;
    pthread_mutex_init(&m->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&m->ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return m;
}

/* More than any run lasts, and few enough for every clock. */
static const double SECONDS_MOST = 1e9;

static struct timespec time_after(double seconds) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    seconds = fmin(seconds, SECONDS_MOST);
    const double whole = floor(seconds);
    at.tv_sec += (time_t)whole;
    at.tv_nsec += (long)(1e9 * (seconds - whole));
    if (at.tv_nsec >= 1000000000) {
        at.tv_sec++;
        at.tv_nsec -= 1000000000;
    }
    return at;
}

/* Takes the lock, and gives up when the time is over. Returns whether it is done. */
static bool wait_for(making *m, double seconds) {
    const struct timespec end = time_after(seconds);
    pthread_mutex_lock(&m->lock);
    while (!m->done && pthread_cond_timedwait(&m->ended, &m->lock, &end) != ETIMEDOUT)
        ;
    const bool done = m->done;
    m->given_up = !done;
    pthread_mutex_unlock(&m->lock);
    return done;
}

ncclResult_t nccl_init(const nccl_membership *of, double seconds, ncclComm_t *made) {
    making *m = prepare(of);
    pthread_t thread;
    if (cudaGetDevice(&m->gpu) != cudaSuccess || thread_create(&thread, make, m) != 0) {
        drop(m);
        return ncclSystemError;
    }
    if (!wait_for(m, seconds)) {
        pthread_detach(thread);
        return ncclInProgress;
    }
    pthread_join(thread, NULL);
    const ncclResult_t result = m->result;
    *made = m->made;
    drop(m);
    return result;
}
