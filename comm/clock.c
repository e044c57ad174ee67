#include "comm/clock.h"

#include "comm/patience.h"
#include "engine/checked.h"

#include <math.h>
#include <stdlib.h>

enum { EXCHANGES = 32 };

static int lowest_rank_of(const world *w, int node) {
    int rank = 0;
    while (w->node_of[rank] != node)
        rank++;
    return rank;
}

/* On rank 0. */
static clock_offset ask(world *w, int rank) {
    clock_offset best = {.error = INFINITY};
    for (int i = 0; i < EXCHANGES; i++) {
        double asked = patience_clock(), there;
        world_send(w, &asked, sizeof asked, rank);
        world_receive(w, &there, sizeof there, rank);
        const double answered = patience_clock(), error = (answered - asked) / 2;
        if (error < best.error)
            best = (clock_offset){.seconds = there - (asked + error), .error = error};
    }
    return best;
}

static void answer(world *w) {
    for (int i = 0; i < EXCHANGES; i++) {
        double asked;
        world_receive(w, &asked, sizeof asked, 0);
        const double here = patience_clock();
        world_send(w, &here, sizeof here, 0);
    }
}

clock_offset clock_compare(world *w) {
    clock_offset *nodes = memory_allocate((size_t)w->nodes, sizeof *nodes);
    for (int node = 0; node < w->nodes; node++) { /* one after the other, so that no exchange waits for another's */
        const int rank = lowest_rank_of(w, node);
        if (node == w->node_of[0])
            continue;
        if (w->rank == 0)
            nodes[node] = ask(w, rank);
        else if (w->rank == rank)
            answer(w);
    }
    world_broadcast(w, nodes, (size_t)w->nodes * sizeof *nodes, 0);
    const clock_offset mine = nodes[w->node];
    free(nodes);
    return mine;
}
