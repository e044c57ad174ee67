/* Private to comm/: connections between nodes that carry next to nothing and are there to break, so that each end
 * notices when the other is gone.
 *
 * The nodes form a ring in the order of their numbers, and each is connected to the two before and the two behind it.
 * The systems at both ends of a connection send a probe each second and answer the other's, whatever the processes do
 * meanwhile: one that computes for minutes, gets no core or is stopped is no reason to worry. The connections of a
 * process that ends, in whatever way, are closed by its system. A node that is down, or that the network does not
 * reach, answers no probe.
 *
 * Two nodes are connected by every pair of addresses at which one answers the other, and count as connected while one
 * of these works. Words that come from anybody who does not know the job's key are ignored.
 *
 * Used by one thread at a time, unless said otherwise. No MPI. */
#ifndef FSDP_COMM_LIFELINE_H
#define FSDP_COMM_LIFELINE_H

#include "comm/address.h"
#include "comm/failure.h"

#include <stdint.h>

enum { LIFELINE_NEIGHBOURS = 4 };

typedef struct lifelines lifelines;

typedef enum lifeline_state {
    LIFELINE_MISSING, /* never connected */
    LIFELINE_HELD,
    LIFELINE_LEFT, /* it has taken its leave */
    LIFELINE_ENDED /* its process has ended without a word */
} lifeline_state;

/* Listens at every address of this node, on a port of the system's choice. The key is the same on all nodes of the
 * job. */
bool lifelines_open(int node, int nodes, uint64_t key, lifelines **opened, error *e);
/* Takes leave. */
void lifelines_close(lifelines *l);

/* The port for addresses of a family; 0: this system has none of them. */
uint16_t lifelines_port(const lifelines *l, int family);

/* The addresses of this node at which others may call it. Writes at most `room`, returns how many there are. */
int lifelines_addresses(const lifelines *l, address *addresses, int room);

/* The neighbours' numbers; returns how many there are. */
int lifelines_neighbours(int node, int nodes, int neighbours[LIFELINE_NEIGHBOURS]);

/* Begins to call a neighbour at one of its addresses, unless it is the one to call, or nobody is there. */
void lifelines_call(lifelines *l, int node, const address *to);

/* Makes and takes calls and reads what comes; returns when something did, or after that many seconds. */
void lifelines_attend(lifelines *l, double seconds);

/* Makes lifelines_attend return, now or at its next call. By any thread. */
void lifelines_wake(lifelines *l);

/* As the latest lifelines_attend has found it. */
lifeline_state lifelines_state(const lifelines *l, int node);

/* Seconds since the last sign of a neighbour's system. */
double lifelines_silence(const lifelines *l, int node);

/* To all connected neighbours. */
void lifelines_tell(lifelines *l, const failure *f);
/* Whether a neighbour has told of a failure; the first is kept. */
bool lifelines_told(const lifelines *l, failure *f);

#endif
