#include "comm/loopback.h"

#include "comm/world_state.h"
#include "engine/checked.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A rank sends one thing at a time. */
typedef struct transfer {
    const void *data; /* NULL: no transfer under way */
    int to;
} transfer;

/* What a rank shows to the others while all are inside one exchange. */
struct loopback {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int ranks;
    int arrived;        /* at the meeting that is gathering */
    uint64_t meetings;  /* completed */
    const void **shown; /* [ranks]: the memory that a rank lets the others read */
    transfer *sent;     /* [ranks]: what a rank waits for another to take */
};

typedef struct loopback_state {
    world_state common;
    loopback *loopback;
    bool owner; /* the loopback lives and dies with this world */
} loopback_state;

static loopback *loopback_of(const world *w) {
    return ((loopback_state *)w->state)->loopback;
}

loopback *loopback_create(int ranks) {
    check(ranks >= 1, "a job of %d ranks", ranks);
    loopback *l = memory_allocate(1, sizeof *l);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&l->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&l->mutex, NULL);
    l->ranks = ranks;
    l->shown = memory_allocate((size_t)ranks, sizeof *l->shown);
    l->sent = memory_allocate((size_t)ranks, sizeof *l->sent);
    return l;
}

void loopback_destroy(loopback *l) {
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->mutex);
    free(l->shown);
    free(l->sent);
    free(l);
}

static struct timespec deadline_after(double seconds) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    double whole = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec + seconds;
    t.tv_sec = (time_t)whole;
    t.tv_nsec = (long)((whole - (double)t.tv_sec) * 1e9);
    return t;
}

/* All ranks meet; the last to come wakes the others. */
static bool meet(loopback *l, double limit) {
    struct timespec deadline = deadline_after(limit > 0 ? limit : 0);
    bool in_time = true;
    pthread_mutex_lock(&l->mutex);
    uint64_t meeting = l->meetings;
    if (++l->arrived == l->ranks) {
        l->arrived = 0;
        l->meetings++;
        pthread_cond_broadcast(&l->changed);
    }
    while (in_time && l->meetings == meeting)
        if (limit < 0)
            pthread_cond_wait(&l->changed, &l->mutex);
        else
            in_time = pthread_cond_timedwait(&l->changed, &l->mutex, &deadline) != ETIMEDOUT || l->meetings != meeting;
    pthread_mutex_unlock(&l->mutex);
    return in_time;
}

static bool loopback_barrier(world *w, double limit) {
    return meet(loopback_of(w), limit);
}

static bool loopback_broadcast(world *w, void *data, size_t bytes, int root, double limit) {
    loopback *l = loopback_of(w);
    l->shown[w->rank] = data;
    if (!meet(l, limit))
        return false;
    if (w->rank != root)
        memcpy(data, l->shown[root], bytes);
    return meet(l, limit);
}

static bool loopback_all_gather(world *w, const void *mine, size_t bytes, void *all, double limit) {
    loopback *l = loopback_of(w);
    l->shown[w->rank] = mine;
    if (!meet(l, limit))
        return false;
    for (int r = 0; r < w->size; r++) {
        char *place = (char *)all + (size_t)r * bytes;
        if (place != l->shown[r]) /* mine may lie in its place */
            memcpy(place, l->shown[r], bytes);
    }
    return meet(l, limit);
}

static void loopback_send(world *w, const void *data, size_t bytes, int to) {
    if (bytes == 0)
        return;
    loopback *l = loopback_of(w);
    transfer *mine = &l->sent[w->rank];
    pthread_mutex_lock(&l->mutex);
    *mine = (transfer){data, to};
    pthread_cond_broadcast(&l->changed);
    while (mine->data != NULL)
        pthread_cond_wait(&l->changed, &l->mutex);
    pthread_mutex_unlock(&l->mutex);
}

static void loopback_receive(world *w, void *data, size_t bytes, int from) {
    if (bytes == 0)
        return;
    loopback *l = loopback_of(w);
    transfer *theirs = &l->sent[from];
    pthread_mutex_lock(&l->mutex);
    while (theirs->data == NULL || theirs->to != w->rank)
        pthread_cond_wait(&l->changed, &l->mutex);
    memcpy(data, theirs->data, bytes);
    theirs->data = NULL;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->mutex);
}

static void loopback_close(world *w) {
    loopback_state *state = (loopback_state *)w->state;
    if (state->owner)
        loopback_destroy(state->loopback);
    world_state_free(w);
}

static const world_functions loopback_functions = {.barrier = loopback_barrier,
                                                   .broadcast = loopback_broadcast,
                                                   .all_gather = loopback_all_gather,
                                                   .send = loopback_send,
                                                   .receive = loopback_receive,
                                                   .close = loopback_close};

void loopback_world(loopback *l, int rank, world *w) {
    loopback_state *state = memory_allocate(1, sizeof *state);
    state->common.functions = &loopback_functions;
    state->common.one_process = true;
    state->loopback = l;
    int *one_node = memory_allocate((size_t)l->ranks, sizeof *one_node);
    world_state_place(w, &state->common, rank, l->ranks, one_node);
    free(one_node);
}

world world_imagined(int ranks) {
    world w;
    loopback_world(loopback_create(ranks), 0, &w);
    ((loopback_state *)w.state)->owner = true;
    return w;
}
