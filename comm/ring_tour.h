/* The cheapest tours through all of up to 16 places: Held and Karp's dynamic programme over subsets (1962). */
#ifndef FSDP_COMM_RING_TOUR_H
#define FSDP_COMM_RING_TOUR_H

enum { TOUR_PLACES_MOST = 16 };

typedef struct tour_search {
    int places;
    double cost[TOUR_PLACES_MOST][TOUR_PLACES_MOST];       /* [from][to]; huge: not allowed */
    double start[TOUR_PLACES_MOST], end[TOUR_PLACES_MOST]; /* from where tours start to the first place; from the last
                                                             place back */
    double *best; /* [2^places][TOUR_PLACES_MOST]: cheapest way from the start through a set to its last place */
} tour_search;

#define TOUR_NO_WAY 1e30

void tour_start(tour_search *s, int places);
void tour_free(tour_search *s);

/* Reads cost, start and end. Fills orders[i] and costs[i] with the cheapest tour whose last place is i (cost
 * TOUR_NO_WAY: none). */
void tour_find(tour_search *s, int orders[][TOUR_PLACES_MOST], double costs[TOUR_PLACES_MOST]);

#endif
