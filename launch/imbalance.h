/* How evenly a step's work is spread over the ranks, and which rank holds the others up.
 *
 * A rank computes while it neither waits for others nor moves their parts, so a rank whose cores are slower, or shared
 * with other work, computes longer, and the others wait for it in the collectives. Inside a node this holds for steps
 * of any length, since a rank that loses its core while it waits does not count as waiting when all have come. */
#ifndef FSDP_LAUNCH_IMBALANCE_H
#define FSDP_LAUNCH_IMBALANCE_H

#include "engine/trace.h"

/* Of a step, over all ranks. Seconds; NAN: not measured. */
typedef struct imbalance {
    step_shares sum; /* over the ranks */
    double exposed;  /* gather + reduce, the largest */
    double compute;  /* mean */
    int slowest;     /* the rank that computed longest; the lowest of several */
    step_shares slowest_shares;
} imbalance;

/* shares: [ranks]. */
imbalance imbalance_of(const step_shares *shares, int ranks);

step_shares shares_sum(step_shares a, step_shares b);
double exposed_seconds(const step_shares *shares); /* gather + reduce */

/* Finds a rank that stays behind: it computes 10 % longer than the mean, or more, for 20 steps. These are taken as four
 * runs of five, each summed: a rank that loses its core now and then is found as well, one hiccup names nobody. */
typedef struct laggards {
    int ranks;
    double *compute; /* [ranks]: of the present run of steps, summed */
    int steps;       /* in it */
    int rank, runs;  /* who was behind in how many runs without a break */
    int named;       /* -1: nobody yet */
} laggards;

laggards laggards_create(int ranks);
void laggards_release(laggards *l);

/* Takes a step's shares, [ranks]. The number of a rank to be named, in *behind by how much of the mean (0.1: 10 %):
 * once, and again when another was named in between; -1: none. */
int laggards_watch(laggards *l, const step_shares *shares, double *behind);

#endif
