/* The ranks of a job: who is where, and the few host-side exchanges that start-up, errors and saving need. Training
 * itself communicates through comm/collectives.h.
 *
 * Started by mpirun this is MPI (comm/world_mpi.c); started alone it is one rank and MPI is never initialised; for
 * tests, several ranks can be threads of one process (comm/loopback.h). MPI is called by the main thread only.
 *
 * Every function that takes a world and says nothing else is called by all ranks, in the same order. Waiting yields
 * the core.
 *
 * How a job ends after an error. An error of the start-up or of a phase between steps is met by world_agree at the end
 * of that phase. An error inside a step, when the others may be waiting in a collective, is told to them first:
 *
 *     if (failed here) collectives_fail(c, &e);      the others' waits return false with the same error
 *     agreed = world_agree(w, &e);                   every rank comes here, with its own or the received error
 *     if (!agreed && world_speaks(w)) print e.message;
 *     world_close(w);                                all meet after the last word
 *     return e.code;
 *
 * After an agreed failure the only legal calls are world_speaks and world_close, and memory that collectives work on
 * stays allocated until world_close returns. If ranks are lost (dead, or stuck beyond the time-out) agreement waits a
 * few seconds at most, and world_close ends the job through the launcher. Losses on other nodes are found while
 * comm/heartbeat.h watches; then agreements and exchanges that have a time end as well, and processes that are in an
 * exchange without one are ended. */
#ifndef FSDP_COMM_WORLD_H
#define FSDP_COMM_WORLD_H

#include "engine/error.h"

#include <stddef.h>
#include <stdint.h>

typedef struct world {
    int rank, size;             /* of the job */
    int local_rank, local_size; /* among the ranks of this node */
    int node, nodes;            /* node number, in order of its lowest rank */
    const int *node_of;         /* [size]: node of every rank */
    const int *local_rank_of;   /* [size] */
    const char *host;           /* name of this host */
    struct world_state *state;  /* private */
} world;

/* Opens the job; argc/argv are main's. On failure *w is one rank, so that the error can be printed and closed alike. */
bool world_open(world *w, int *argc, char ***argv, error *e);
void world_close(world *w);

/* Rank 0 of a job of that many ranks, all on this machine, to plan for: no exchanges unless it is alone; closed with
 * world_close. */
world world_imagined(int ranks);

/* What happened on any rank happens on all. Every rank calls it at the same place with its own error (code 0: fine).
 * Returns true when all are fine. Otherwise every rank's *e becomes the same error: the one of the lowest rank that
 * failed; texts that only that rank saw (error.own) are prefixed "rank R (host): " when there are several ranks. */
bool world_agree(world *w, error *e);

/* The same for a failure that the job survives, as of a checkpoint that could not be written: all ranks go on. */
bool world_agree_and_go_on(world *w, error *e);

/* Whether this rank is the one that prints: rank 0 or, when rank 0 is lost, the lowest that is not. Local. */
bool world_speaks(const world *w);

void world_barrier(world *w);
void world_broadcast(world *w, void *data, size_t bytes, int root);
/* Gathers `bytes` from each rank to every rank: all[size * bytes]. */
void world_all_gather(world *w, const void *mine, size_t bytes, void *all);
/* The same, in at most that many seconds. False: not all have come; no further exchange is possible, and the memory of
 * this one stays allocated until world_close. */
bool world_all_gather_within(world *w, const void *mine, size_t bytes, void *all, double seconds);
double world_maximum(world *w, double value);

/* Blocking transfer between two ranks, of any size, for saving. The receiver's size equals the sender's. */
void world_send(world *w, const void *data, size_t bytes, int to);
void world_receive(world *w, void *data, size_t bytes, int from);

#endif
