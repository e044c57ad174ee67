/* Rings through a node's GPUs: the set that together carries the most, each link shared by all that cross it.
 *
 * A ring is directed and visits every GPU once; between neighbours its bytes take the route of comm/ring_route.h and
 * load each link of it. To maximise the sum of the rings' bandwidths is a linear programme with a variable for each of
 * the (n-1)! rings and a row for each directed link. It is solved over the rings found so far; its dual values price
 * the links, and the cheapest ring at these prices (ring_tour.h) is the next one, until none costs less than 1. The
 * prices then prove the sum to be the largest: every ring costs at least 1, and all that the links hold costs the sum.
 * Stopped before, they still give a bound: the sum divided by the cheapest ring's cost.
 *
 * On a machine that is one of several nodes a ring comes in over a card, runs through all GPUs and leaves over the same
 * card: it enters at the GPU nearest to it and leaves at the nearest other one. */
#ifndef FSDP_COMM_RING_H
#define FSDP_COMM_RING_H

#include "comm/ring_route.h"
#include "comm/ring_tour.h"
#include "comm/topology.h"

enum { RING_GPUS_MOST = TOUR_PLACES_MOST };

typedef struct ring {
    int order[RING_GPUS_MOST]; /* nodes of GPUs; from the lowest device number on, or from where the ring enters */
    int card;                  /* the card's node; -1: the ring stays inside the node */
    double bandwidth;          /* GB/s */
    int slowest;               /* link that would be its limit if it were alone */
    double alone;              /* what it would carry then */
    int step_count;            /* from GPU to GPU, first from and last to the card if there is one */
    route_kind steps[RING_GPUS_MOST + 1];
} ring;

typedef struct ring_set {
    int gpus;
    ring *rings; /* the widest first */
    int count;   /* 0: fewer than two GPUs and no other node, so there is nothing to exchange */
    double total;
    double bound;  /* no set of rings carries more; total, where it is proved to be the best */
    double *load;  /* [links of the topology]: GB/s that the rings take of each */
    double *price; /* [links]: of a GB/s; all links' bandwidths at their prices cost the bound */
    /* The same as NCCL runs rings: side by side, all at one speed. */
    ring *channels; /* each with its own ring; bandwidth is channel_speed */
    int channel_count;
    double channel_speed; /* GB/s of one; together they may carry less than total, never more */
} ring_set;

/* nodes: how many machines like this one the job has; more than 1 needs a card. Errors (EXIT_USAGE): more than
 * RING_GPUS_MOST GPUs, no card, GPUs that no link connects. ring_free releases what a success holds. */
bool ring_find(const topology *t, int nodes, ring_set *set, error *e);
void ring_free(ring_set *set);

#endif
