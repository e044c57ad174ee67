/* Private to comm/: what a world consists of behind its public face. */
#ifndef FSDP_COMM_WORLD_STATE_H
#define FSDP_COMM_WORLD_STATE_H

#include "comm/failure.h"
#include "comm/world.h"

/* How ranks reach each other: by MPI, or as threads of one process. `limit` is in seconds, or UNTIL_LOST; whatever it
 * is, an exchange also ends when ranks are found to be lost, except WITHOUT_LIMIT, which waits for ever. Returning
 * false means that it ended so: the exchange may then still be under way, so the memory given to it stays allocated,
 * and no further exchange is possible. */
typedef struct world_functions {
    bool (*barrier)(world *w, double limit);
    bool (*broadcast)(world *w, void *data, size_t bytes, int root, double limit);
    bool (*all_gather)(world *w, const void *mine, size_t bytes, void *all, double limit);
    void (*send)(world *w, const void *data, size_t bytes, int to);
    void (*receive)(world *w, void *data, size_t bytes, int from);
    void (*close)(world *w); /* frees the state */
} world_functions;

static const double UNTIL_LOST = -1, WITHOUT_LIMIT = -2;

/* The first member of every implementation's state. */
typedef struct world_state {
    const world_functions *functions;
    bool one_process; /* the ranks are threads of this process */
    bool failed;      /* an agreement found an error */
    bool broken;      /* an exchange ran out of time, or ranks are lost: no more exchanges */
    double limit;     /* of agreeing and closing */
    double grace;     /* seconds that the speaker is given to print when ranks are lost */
    int code;         /* of the error that was agreed on */
    int speaker;
    int own_code, *codes; /* of errors; here rather than on a stack, because a broken exchange may still write them */
    error agreed;
    struct heartbeat *heartbeat; /* NULL: nodes are not watched */
    int *node_of, *local_rank_of;
    char host[256];
} world_state;

/* Fills *w and the parts of a zeroed state that all implementations share. node_key[size]: any number that the ranks of
 * one node, and only they, have in common. */
void world_state_place(world *w, world_state *state, int rank, int size, const int *node_key);
void world_state_free(world *w);

/* Puts the rank's name before a text that only it saw. */
void world_name_rank(const world *w, error *e);

/* A step failed: agreeing on it takes no longer than this. */
void world_limit(world *w, double seconds);
/* Ranks do not answer, and may be lost: agreeing takes a few seconds at most, and `speaker` prints. */
void world_doubt(world *w, int speaker);
/* Ranks are lost: the same, but nobody waits for them. */
void world_lose(world *w, int speaker);

/* Whether ranks of another node are known to be lost. Cheap. */
bool world_lost(const world *w, failure *f);

#endif
