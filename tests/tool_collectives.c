/* Collectives between processes: tool_collectives CASE TRANSPORT, started by mpirun from launch_collectives.sh.
 *
 *   check   all kinds against sums in rank order          fail    the last rank cannot go on
 *   nodes   the same, even and odd ranks on two "nodes"   stuck   the last rank never comes, time-out 1 second
 *   kill    the last rank dies from a signal              exit    the last rank leaves without a word
 *   resident  what is read of the others' arenas does not stay in this process's memory
 *
 * Errors end as in the program: agreed on, printed once by the rank that speaks, exit code of the error. */
#include "engine/checked.h"
#include "engine/device/cpu/shared_memory.h"
#include "support/collective_checks.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const int PARTS = 300000; /* floats: too many for MPI to buffer, so that messages are under way at a failure */

static void last_rank(const char *how, world *w, gathers *g, error *e) {
    if (strcmp(how, "kill") == 0)
        raise(SIGKILL);
    if (strcmp(how, "exit") == 0)
        _exit(3);
    if (strcmp(how, "stuck") == 0)
        for (;;)
            pause();
    error_set_own(e, EXIT_LAUNCH, "disk full");
    collectives_fail(g->collectives, e);
    (void)w;
}

static bool meet_failure(world *w, const char *how, transport t, error *e) {
    gathers g;
    if (gathers_open(w, t, 4, PARTS, strcmp(how, "stuck") == 0 ? 1 : 600, &g, e)) {
        collectives_issue(g.collectives, 0);
        bool fine = collectives_complete(g.collectives, 0, 0, e);
        if (fine && w->rank == w->size - 1) {
            usleep(300000);
            last_rank(how, w, &g, e);
        } else if (fine) {
            collectives_issue(g.collectives, 1);
            collectives_complete(g.collectives, 1, 0, e);
        }
    }
    return world_agree(w, e);
}

static int64_t peak_bytes(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (int64_t)used.ru_maxrss * 1024;
}

/* Of each other rank a piece at a time: a huge page. */
static bool stay_in_memory(world *w, transport t, error *e) {
    gathers g;
    if (gathers_open(w, t, 2, 4 << 20, 60, &g, e)) {
        memset(g.memory.base, 0, g.memory.bytes);
        const int64_t before = peak_bytes(), allowed = (w->size - 1) * HUGE_PAGE + (1 << 20);
        for (int32_t i = 0; i < 2; i++)
            collectives_issue(g.collectives, i);
        if (collectives_finish(g.collectives, e) && peak_bytes() - before > allowed)
            error_set_own(e, EXIT_LAUNCH, "peak grew by %lld bytes", (long long)(peak_bytes() - before));
    }
    return world_agree(w, e);
}

/* A view of the world in which even and odd ranks are on different nodes. */
static void pretend_two_nodes(world *w, int *node_of, int *local_rank_of) {
    for (int r = 0; r < w->size; r++) {
        node_of[r] = r % 2;
        local_rank_of[r] = r / 2;
    }
    w->node = w->rank % 2;
    w->nodes = w->size > 1 ? 2 : 1;
    w->local_rank = w->rank / 2;
    w->local_size = (w->size + 1 - w->node) / 2;
    w->node_of = node_of;
    w->local_rank_of = local_rank_of;
}

static transport transport_named(const char *name) {
    return strcmp(name, "messages") == 0 ? TRANSPORT_MESSAGES
           : strcmp(name, "window") == 0 ? TRANSPORT_WINDOW
                                         : TRANSPORT_AUTO;
}

static bool act(world *w, const char *what, transport t, error *e) {
    int node_of[64], local_rank_of[64];
    check(w->size <= 64, "too many ranks");
    if (strcmp(what, "nodes") == 0) {
        world two_nodes = *w;
        pretend_two_nodes(&two_nodes, node_of, local_rank_of);
        return collective_checks(&two_nodes, t, 1, 3, e);
    }
    if (strcmp(what, "check") == 0)
        return collective_checks(w, t, 1, 3, e);
    if (strcmp(what, "resident") == 0)
        return stay_in_memory(w, t, e);
    return meet_failure(w, what, t, e);
}

int main(int argc, char **argv) {
    world w;
    error e = {0};
    if (argc != 3 || !world_open(&w, &argc, &argv, &e)) {
        fprintf(stderr, "tool_collectives: %s\n", argc != 3 ? "CASE TRANSPORT" : e.message);
        return EXIT_USAGE;
    }
    bool fine = act(&w, argv[1], transport_named(argv[2]), &e);
    if (fine && w.rank == 0)
        printf("fine: %d ranks\n", w.size);
    else if (!fine && world_speaks(&w))
        fprintf(stderr, "error: %s\n", e.message);
    fflush(stdout);
    world_close(&w);
    return e.code;
}
