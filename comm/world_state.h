/* Private to comm/: what a world consists of behind its public face. */
#ifndef FSDP_COMM_WORLD_STATE_H
#define FSDP_COMM_WORLD_STATE_H

#include "comm/world.h"

/* How ranks reach each other: by MPI, or as threads of one process. `limit` is in seconds; WITHOUT_LIMIT waits for
 * ever. Returning false means that the time is up: the exchange may then still be under way, so the memory given to it
 * stays allocated, and no further exchange is possible. */
typedef struct world_functions {
    bool (*barrier)(world *w, double limit);
    bool (*broadcast)(world *w, void *data, size_t bytes, int root, double limit);
    bool (*all_gather)(world *w, const void *mine, size_t bytes, void *all, double limit);
    void (*send)(world *w, const void *data, size_t bytes, int to);
    void (*receive)(world *w, void *data, size_t bytes, int from);
    void (*close)(world *w); /* frees the state */
} world_functions;

static const double WITHOUT_LIMIT = -1;

/* The first member of every implementation's state. */
typedef struct world_state {
    const world_functions *functions;
    bool one_process; /* the ranks are threads of this process */
    bool failed;      /* an agreement found an error */
    bool broken;      /* an exchange ran out of time: no more exchanges */
    double limit;     /* seconds that agreeing and closing may take */
    int code;         /* of the error that was agreed on */
    int speaker;
    int own_code, *codes; /* of errors; here rather than on a stack, because a broken exchange may still write them */
    error agreed;
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
/* Ranks are lost: agreeing takes a few seconds at most, and `speaker` prints. */
void world_doubt(world *w, int speaker);

#endif
