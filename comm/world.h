/* The ranks of a job: who is where, and the few host-side exchanges that start-up, errors and saving need. Training
 * itself communicates through comm/collectives.h.
 *
 * Started by mpirun this is MPI; started alone it is one rank and MPI is never initialised. MPI is called by the main
 * thread only. */
#ifndef FSDP_COMM_WORLD_H
#define FSDP_COMM_WORLD_H

#include "engine/error.h"

#include <stddef.h>
#include <stdint.h>

typedef struct world {
    int rank, size;              /* of the job */
    int local_rank, local_size;  /* among the ranks of this node */
    int node, nodes;             /* node number, in order of its lowest rank */
    const int *node_of;          /* [size]: node of every rank */
    const int *local_rank_of;    /* [size] */
    const char *host;            /* name of this host */
    struct world_state *state;   /* private */
} world;

/* Opens the job; argc/argv are main's. */
bool world_open(world *w, int *argc, char ***argv, error *e);
void world_close(world *w);

/* What happened on any rank happens on all. Every rank calls it at the same place with its own error (code 0: fine).
 * Returns true when all are fine. Otherwise every rank's *e becomes the same error: the one of the lowest rank that
 * failed; texts that only that rank saw (error.own) are prefixed "rank R (host): ". */
bool world_agree(world *w, error *e);

/* For an error found while other ranks may be waiting inside a collective or elsewhere in the step: makes them return
 * with the same error soon (through collectives' failure flag and, between nodes, a message), then behaves as
 * world_agree. After it the only legal calls are printing and world_close. See comm/collectives.h. */

void world_barrier(world *w);
void world_broadcast(world *w, void *data, size_t bytes, int root);
/* Gathers `bytes` from each rank to every rank: all[size * bytes]. */
void world_all_gather(world *w, const void *mine, size_t bytes, void *all);
double world_maximum(world *w, double value);
int64_t world_sum(world *w, int64_t value);

/* Blocking transfer between two ranks in pieces of any size, for saving. */
void world_send(world *w, const void *data, size_t bytes, int to);
void world_receive(world *w, void *data, size_t bytes, int from);

#endif
