#include "comm/heartbeat.h"
#include "comm/patience.h"
#include "comm/world_mpi.h"
#include "comm/world_state.h"
#include "engine/checked.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* How long a rank waits for the others when it knows that one may be lost, or is. Those that are alive find out about
 * the failure in their next wait, at most one operation away; of a loss the heartbeat tells after two seconds. */
static const double GRACE_SECONDS = 5, LOST_SECONDS = 3;

bool world_open(world *w, int *argc, char ***argv, error *e) {
    if (world_mpi_launched())
        return world_mpi_open(w, argc, argv, e);
    *w = world_imagined(1);
    return true;
}

void world_state_place(world *w, world_state *state, int rank, int size, const int *node_key) {
    state->node_of = memory_allocate((size_t)size, sizeof *state->node_of);
    state->local_rank_of = memory_allocate((size_t)size, sizeof *state->local_rank_of);
    state->codes = memory_allocate((size_t)size, sizeof *state->codes);
    state->limit = UNTIL_LOST;
    state->grace = GRACE_SECONDS;
    if (gethostname(state->host, sizeof state->host - 1) != 0)
        snprintf(state->host, sizeof state->host, "unknown host");
    int nodes = 0, *met = memory_allocate((size_t)size, sizeof *met); /* ranks of a node so far, at its lowest rank */
    for (int r = 0; r < size; r++) {
        int first = 0; /* lowest rank of the same node */
        while (node_key[first] != node_key[r])
            first++;
        state->node_of[r] = first == r ? nodes++ : state->node_of[first];
        state->local_rank_of[r] = met[first]++;
    }
    free(met);
    *w = (world){.rank = rank,
                 .size = size,
                 .local_rank = state->local_rank_of[rank],
                 .node = state->node_of[rank],
                 .nodes = nodes,
                 .node_of = state->node_of,
                 .local_rank_of = state->local_rank_of,
                 .host = state->host,
                 .state = state};
    for (int r = 0; r < size; r++)
        w->local_size += state->node_of[r] == w->node;
}

void world_state_free(world *w) {
    world_state *state = w->state;
    free(state->node_of);
    free(state->local_rank_of);
    free(state->codes);
    free(state);
    *w = (world){0};
}

void world_close(world *w) {
    world_state *state = w->state;
    const world_functions *functions = state->functions;
    /* The launcher kills the others when the first rank leaves with an error, so none leaves before the speaker, who
     * comes here after printing. */
    const bool waits = state->broken && !world_speaks(w);
    if (state->failed && !state->broken && !functions->barrier(w, state->limit))
        state->broken = true;
    heartbeat_stop(state->heartbeat);
    if (waits)
        patience_sleep(state->grace);
    functions->close(w);
}

void world_limit(world *w, double seconds) {
    if (w->state->limit < 0)
        w->state->limit = seconds;
}

static void wait_no_longer(world *w, int speaker, double seconds) {
    w->state->limit = w->state->grace = seconds;
    w->state->speaker = speaker;
}

void world_doubt(world *w, int speaker) {
    wait_no_longer(w, speaker, GRACE_SECONDS);
}

void world_lose(world *w, int speaker) {
    wait_no_longer(w, speaker, LOST_SECONDS);
}

bool world_lost(const world *w, failure *f) {
    return heartbeat_failed(w->state->heartbeat, f);
}

bool world_speaks(const world *w) {
    return w->rank == w->state->speaker;
}

void world_name_rank(const world *w, error *e) {
    if (e->own && w->size > 1) {
        error plain = *e;
        snprintf(e->message, sizeof e->message, "rank %d (%s): %.1600s", w->rank, w->host, plain.message);
    }
    e->own = false;
}

/* The ranks cannot be brought together any more: this one keeps what it knows. */
static bool part(world *w, error *e) {
    failure lost;
    if (world_lost(w, &lost)) {
        world_lose(w, lost.speaker);
        if (e->code == 0)
            *e = lost.error;
    }
    w->state->broken = w->state->failed = true;
    world_name_rank(w, e);
    w->state->code = e->code;
    return false;
}

bool world_agree(world *w, error *e) {
    world_state *state = w->state;
    int failed = 0; /* the lowest rank that has */
    state->own_code = e->code;
    if (!state->functions->all_gather(w, &state->own_code, sizeof state->own_code, state->codes, state->limit))
        return part(w, e);
    while (failed < w->size && state->codes[failed] == 0)
        failed++;
    if (failed == w->size)
        return true;
    if (failed == w->rank) {
        world_name_rank(w, e);
        state->agreed = *e;
    }
    if (!state->functions->broadcast(w, &state->agreed, sizeof state->agreed, failed, state->limit))
        return part(w, e);
    *e = state->agreed;
    state->failed = true;
    state->code = e->code;
    return false;
}

bool world_agree_and_go_on(world *w, error *e) {
    world_state *state = w->state;
    if (world_agree(w, e))
        return true;
    state->failed = state->broken;
    state->code = state->broken ? state->code : 0;
    return false;
}

void world_barrier(world *w) {
    if (!w->state->broken && !w->state->functions->barrier(w, w->state->limit))
        w->state->broken = true;
}

void world_broadcast(world *w, void *data, size_t bytes, int root) {
    w->state->functions->broadcast(w, data, bytes, root, WITHOUT_LIMIT);
}

void world_all_gather(world *w, const void *mine, size_t bytes, void *all) {
    w->state->functions->all_gather(w, mine, bytes, all, WITHOUT_LIMIT);
}

bool world_all_gather_within(world *w, const void *mine, size_t bytes, void *all, double seconds) {
    if (!w->state->broken && !w->state->functions->all_gather(w, mine, bytes, all, seconds))
        w->state->broken = true;
    return !w->state->broken;
}

double world_maximum(world *w, double value) {
    double *all = memory_allocate((size_t)w->size, sizeof *all);
    world_all_gather(w, &value, sizeof value, all);
    for (int r = 0; r < w->size; r++)
        value = all[r] > value ? all[r] : value;
    free(all);
    return value;
}

void world_send(world *w, const void *data, size_t bytes, int to) {
    w->state->functions->send(w, data, bytes, to);
}

void world_receive(world *w, void *data, size_t bytes, int from) {
    w->state->functions->receive(w, data, bytes, from);
}
