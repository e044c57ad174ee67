#include "comm/loss.h"

#include "comm/hang.h"
#include "engine/checked.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { NODE_TEXT = 160, NO_NODE = -1, NO_RANK_LOST = -1 };

int roster_lowest_rank(const roster *r, int node) {
    int rank = 0;
    while (r->node_of[rank] != node)
        rank++;
    return rank;
}

void roster_describe(const roster *r, int node, char *text, int text_size) {
    char ranks[64];
    bool *here = memory_allocate((size_t)r->size, sizeof *here);
    for (int rank = 0; rank < r->size; rank++)
        here[rank] = r->node_of[rank] == node;
    const int number = hang_list_ranks(here, r->size, ranks, sizeof ranks);
    snprintf(text, (size_t)text_size, "%s (rank%s %s)", r->hosts[node], number > 1 ? "s" : "", ranks);
    free(here);
}

/* The lowest rank of its node that is neither the lost one nor of the lost node. */
static int speaker_without(const roster *r, int lost_rank, int lost_node) {
    for (int node = 0; node < r->nodes; node++) {
        const int rank = roster_lowest_rank(r, node);
        if (node != lost_node && rank != lost_rank)
            return rank;
    }
    return 0;
}

/* The time of day that many seconds ago. */
static void time_since(double seconds, char *text, size_t text_size) {
    const time_t then = time(NULL) - (time_t)seconds;
    struct tm local;
    localtime_r(&then, &local);
    strftime(text, text_size, "%H:%M:%S", &local);
}

failure loss_of_rank(const roster *r, int rank) {
    failure f = {.speaker = speaker_without(r, rank, NO_NODE)};
    const int node = r->node_of[rank];
    char name[NODE_TEXT];
    roster_describe(r, node, name, sizeof name);
    if (rank == roster_lowest_rank(r, node)) /* who would tell of the others */
        error_set(&f.error, EXIT_LAUNCH, "rank %d has died, perhaps with its whole node %s", rank, name);
    else
        error_set(&f.error, EXIT_LAUNCH, "rank %d has died, on node %s", rank, name);
    return f;
}

failure loss_of_node(const roster *r, int node, double silence, int here) {
    failure f = {.speaker = speaker_without(r, NO_RANK_LOST, node)};
    char name[NODE_TEXT], since[16];
    roster_describe(r, node, name, sizeof name);
    time_since(silence, since, sizeof since);
    error_set(&f.error, EXIT_LAUNCH,
              "node %s is lost: it has not answered %s for %.1f seconds, since %s; it is down, or its network is", name,
              r->hosts[here], silence, since);
    return f;
}

failure loss_of_all_others(const roster *r, double silence, int here) {
    failure f = {.speaker = roster_lowest_rank(r, here)};
    char name[NODE_TEXT], since[16];
    roster_describe(r, here, name, sizeof name);
    time_since(silence, since, sizeof since);
    error_set(&f.error, EXIT_LAUNCH,
              "node %s has lost the other nodes: none has answered it for %.1f seconds, since %s; its network is down, "
              "or they are",
              name, silence, since);
    return f;
}
