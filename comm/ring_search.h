/* The linear programme over rings: those found so far, and the search for better ones at the prices of the links. */
#ifndef FSDP_COMM_RING_SEARCH_H
#define FSDP_COMM_RING_SEARCH_H

#include "comm/ring_steps.h"

typedef struct ring_search {
    ring_steps steps;
    int links;
    int count;    /* rings known so far; it only grows */
    ring *known;  /* order and card */
    double *used; /* [count][links]: what a GB/s of each takes of a link's bandwidth */
    tour_search tour;
    int64_t work; /* left to spend on tours, in their subsets; a search that has used it up stops */
    double end;   /* when it stops too: this thread's processor time */
} ring_search;

typedef struct ring_packing {
    double *amounts; /* [count]; memory_grow'n */
    double sum;
    double bound;  /* sum, where it is proved to be the largest */
    double *price; /* [links]: what proves the bound */
} ring_packing;

/* Errors as ring_steps_find's. */
bool ring_search_start(const topology *t, bool with_cards, ring_search *s, error *e);
void ring_search_free(ring_search *s);

/* From now on: seconds of processor time, and subsets of tours; 0 of these: only known rings are packed. */
void ring_search_limit(ring_search *s, double seconds, int64_t work);
bool ring_search_out_of_time(const ring_search *s);

/* The rings whose sum is largest where links hold `capacity` (0: nothing). packing is zero at first and may be used
 * again. */
void ring_search_pack(ring_search *s, const double *capacity, ring_packing *packing);
void ring_packing_free(ring_packing *packing);

/* A ring's steps in order: enter, from GPU to GPU, leave; or once around. Returns how many. */
int ring_search_steps(const ring_search *s, const ring *r, const route *taken[RING_GPUS_MOST + 1]);

#endif
