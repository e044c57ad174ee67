#include "comm/heartbeat.h"

#include "comm/lifeline.h"
#include "comm/loss.h"
#include "comm/patience.h"
#include "comm/window.h"
#include "comm/world_state.h"
#include "engine/checked.h"
#include "engine/device/cpu/shared_memory.h"
#include "engine/device/thread.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* A node is lost when it has been silent for that long. */
static const double SILENCE_SECONDS = 5;

/* How often the thread looks around. */
static const double LOOK_SECONDS = 0.25;

/* From finding out to raising the alarm: who kills all ranks of a job does not kill them all at one moment. */
static const double SETTLE_SECONDS = 0.5;

/* What nodes are given to answer each other at the start. */
static const double CALL_SECONDS = 3;

/* What the main thread is given to come upon the failure, and then to end the process. A rank that does not speak waits
 * longer: the launcher ends all when the first rank leaves. */
static const double NOTICE_SECONDS = 2, END_SECONDS = 5, SPEAK_SECONDS = 1;

enum { NOBODY = -1 };

struct heartbeat {
    const world *world;
    roster roster;
    device_memory memory; /* what the window looks out of: only its word of a failure is used */
    window *window;
    heartbeat_last_resort *end;
    lifelines *lifelines; /* NULL: this rank does not watch */
    pthread_t thread;
    bool started;
    atomic_bool stopping, noticed;
};

/* ---- the thread ---- */

static int find_dead_rank(const heartbeat *h) {
    for (int rank = 0; rank < h->world->size; rank++)
        if (h->world->node_of[rank] == h->world->node && !window_alive(h->window, rank))
            return rank;
    return NOBODY;
}

/* What the lifelines say: a process that has ended, else whose silence is too long. */
static bool find_lost_node(const heartbeat *h, failure *f) {
    int neighbours[LIFELINE_NEIGHBOURS], held = 0, quiet = 0, silent = NOBODY;
    const int here = h->world->node, count = lifelines_neighbours(here, h->world->nodes, neighbours);
    double silence = 0;
    for (int i = 0; i < count; i++) {
        const lifeline_state state = lifelines_state(h->lifelines, neighbours[i]);
        const double seconds = lifelines_silence(h->lifelines, neighbours[i]);
        if (state == LIFELINE_ENDED) {
            *f = loss_of_rank(&h->roster, roster_lowest_rank(&h->roster, neighbours[i]));
            return true;
        }
        if (state != LIFELINE_HELD)
            continue;
        held++;
        quiet += seconds > SILENCE_SECONDS / 2; /* the others are about to be lost as well */
        if (seconds > SILENCE_SECONDS && seconds > silence) {
            silent = neighbours[i];
            silence = seconds;
        }
    }
    if (silent == NOBODY)
        return false;
    *f = held > 1 && quiet == held ? loss_of_all_others(&h->roster, silence, here)
                                   : loss_of_node(&h->roster, silent, silence, here);
    return true;
}

static bool find_loss(const heartbeat *h, failure *f) {
    if (lifelines_told(h->lifelines, f))
        return true;
    const int dead = find_dead_rank(h);
    if (dead == NOBODY)
        return find_lost_node(h, f);
    *f = loss_of_rank(&h->roster, dead);
    return true;
}

static void attend_for(heartbeat *h, double seconds) {
    const double begun = patience_clock();
    for (double left = seconds; left > 0 && !h->stopping; left = seconds - (patience_clock() - begun))
        lifelines_attend(h->lifelines, left);
}

/* In the order of events: what was found is still so, and better known. */
static bool settle(heartbeat *h, failure *f) {
    if (!lifelines_told(h->lifelines, f))
        attend_for(h, SETTLE_SECONDS);
    return !h->stopping && find_loss(h, f);
}

static void see_to_the_end(heartbeat *h, const failure *f) {
    const bool speaks = f->speaker == h->world->rank;
    attend_for(h, NOTICE_SECONDS);
    if (!h->stopping && h->noticed)
        attend_for(h, END_SECONDS);
    if (!speaks)
        attend_for(h, SPEAK_SECONDS);
    if (!h->stopping)
        h->end(&f->error, speaks);
}

static void *watch(void *argument) {
    heartbeat *h = argument;
    failure f;
    while (!h->stopping) {
        lifelines_attend(h->lifelines, LOOK_SECONDS);
        if (h->stopping || !find_loss(h, &f) || !settle(h, &f))
            continue;
        window_fail(h->window, &f);
        lifelines_tell(h->lifelines, &f);
        see_to_the_end(h, &f);
    }
    return NULL;
}

/* ---- for the main thread ---- */

bool heartbeat_failed(heartbeat *h, failure *f) {
    if (h == NULL || h->window == NULL || !window_failed(h->window, f))
        return false;
    h->noticed = true;
    return true;
}

void heartbeat_stop(heartbeat *h) {
    if (h == NULL)
        return;
    h->stopping = true;
    if (h->started) {
        lifelines_wake(h->lifelines);
        pthread_join(h->thread, NULL);
    }
    if (h->lifelines != NULL)
        lifelines_close(h->lifelines);
    if (h->window != NULL)
        window_close(h->window);
    if (h->memory.base != NULL)
        shared_memory_release(&h->memory);
    free(h->roster.hosts);
    free(h);
}

/* ---- starting ---- */

static bool watches(const world *w) {
    return w->local_rank == 0;
}

static void exchange_hosts(heartbeat *h, world *w) {
    char mine[HOST_NAME_BYTES] = {0};
    char(*all)[HOST_NAME_BYTES] = memory_allocate((size_t)w->size, sizeof *all);
    snprintf(mine, sizeof mine, "%s", w->host);
    world_all_gather(w, mine, sizeof mine, all);
    h->roster = (roster){.size = w->size, .nodes = w->nodes, .node_of = w->node_of};
    h->roster.hosts = memory_allocate((size_t)w->nodes, sizeof *h->roster.hosts);
    for (int rank = w->size - 1; rank >= 0; rank--)
        memcpy(h->roster.hosts[w->node_of[rank]], all[rank], sizeof *all);
    free(all);
}

static bool open_window(heartbeat *h, world *w, error *e) {
    bool *near = memory_allocate((size_t)w->size, sizeof *near);
    for (int rank = 0; rank < w->size; rank++)
        near[rank] = w->node_of[rank] == w->node;
    shared_memory_create(1, &h->memory, e);
    const bool good = world_agree(w, e) && window_open(w, &h->memory, near, 0, &h->window, e);
    free(near);
    return good;
}

static bool open_lifelines(heartbeat *h, world *w, error *e) {
    uint64_t key = 0;
    if (w->rank == 0 && getrandom(&key, sizeof key, 0) != sizeof key)
        key = (uint64_t)(patience_clock() * 1e9);
    world_broadcast(w, &key, sizeof key, 0);
    if (watches(w))
        lifelines_open(w->node, w->nodes, key, &h->lifelines, e);
    return world_agree(w, e);
}

/* Calls the neighbours at all their addresses. */
static void call_neighbours(heartbeat *h, world *w) {
    int count = h->lifelines == NULL ? 0 : lifelines_addresses(h->lifelines, NULL, 0);
    const int room = (int)world_maximum(w, count) + 1; /* an address may have come since */
    address *mine = memory_allocate((size_t)room, sizeof *mine);
    address *all = memory_allocate((size_t)w->size, (size_t)room * sizeof *all);
    if (h->lifelines != NULL)
        lifelines_addresses(h->lifelines, mine, room);
    world_all_gather(w, mine, (size_t)room * sizeof *mine, all);
    int neighbours[LIFELINE_NEIGHBOURS];
    count = h->lifelines == NULL ? 0 : lifelines_neighbours(w->node, w->nodes, neighbours);
    for (int i = 0; i < count; i++)
        for (int a = 0; a < room; a++)
            lifelines_call(h->lifelines, neighbours[i],
                           &all[(size_t)roster_lowest_rank(&h->roster, neighbours[i]) * (size_t)room + (size_t)a]);
    free(mine);
    free(all);
}

/* Whether a neighbour holds a lifeline to this node, which then is watched. */
static bool await_neighbours(heartbeat *h, const world *w) {
    int neighbours[LIFELINE_NEIGHBOURS];
    const int count = lifelines_neighbours(w->node, w->nodes, neighbours);
    const double begun = patience_clock();
    for (;;) {
        int held = 0;
        for (int i = 0; i < count; i++)
            held += lifelines_state(h->lifelines, neighbours[i]) != LIFELINE_MISSING;
        const double left = CALL_SECONDS - (patience_clock() - begun);
        if (held == count || left <= 0)
            return held > 0;
        lifelines_attend(h->lifelines, left);
    }
}

/* Names the first of them. */
static char *warn_of_unwatched(const roster *r, const int *watched) {
    int first = NOBODY, count = 0;
    char name[160], more[32] = "";
    for (int node = r->nodes - 1; node >= 0; node--)
        if (!watched[roster_lowest_rank(r, node)]) {
            first = node;
            count++;
        }
    if (count == 0)
        return NULL;
    roster_describe(r, first, name, sizeof name);
    if (count > 1)
        snprintf(more, sizeof more, ", nor %d more node%s,", count - 1, count > 2 ? "s" : "");
    return memory_format(
        "no other node reaches node %s%s at any address, so that a rank that dies there, or a node that "
        "is lost, is noticed only after [shard] timeout; let the nodes open TCP connections to each "
        "other",
        name, more);
}

static bool start_thread(heartbeat *h, world *w, error *e) {
    const int reason = h->lifelines == NULL ? 0 : thread_create(&h->thread, watch, h);
    h->started = h->lifelines != NULL && reason == 0;
    if (reason != 0)
        error_set_own(e, EXIT_LAUNCH, "cannot start the thread that watches the other nodes: %s", strerror(reason));
    return world_agree(w, e);
}

bool heartbeat_start(world *w, heartbeat_last_resort *end, char **warning, error *e) {
    *warning = NULL;
    if (w->nodes == 1)
        return true;
    heartbeat *h = w->state->heartbeat = memory_allocate(1, sizeof *h);
    *h = (heartbeat){.world = w, .end = end};
    exchange_hosts(h, w);
    if (!open_window(h, w, e) || !open_lifelines(h, w, e))
        return false;
    call_neighbours(h, w);
    const int mine = h->lifelines == NULL || await_neighbours(h, w);
    int *watched = memory_allocate((size_t)w->size, sizeof *watched);
    world_all_gather(w, &mine, sizeof mine, watched);
    *warning = warn_of_unwatched(&h->roster, watched);
    free(watched);
    return start_thread(h, w, e);
}
