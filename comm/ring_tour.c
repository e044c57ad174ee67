#include "comm/ring_tour.h"

#include "engine/checked.h"
#include "engine/error.h"

#include <stdlib.h>

void tour_start(tour_search *s, int places) {
    check(places >= 1 && places <= TOUR_PLACES_MOST, "%d places", places);
    *s = (tour_search){.places = places};
    s->best = memory_allocate((size_t)TOUR_PLACES_MOST << places, sizeof *s->best);
}

void tour_free(tour_search *s) {
    free(s->best);
    s->best = NULL;
}

static double *best_of(const tour_search *s, unsigned set) {
    return s->best + (size_t)set * TOUR_PLACES_MOST;
}

/* Every way through `set` prolonged by each place: the inner loop runs over all places, so that it becomes vector
 * instructions. */
static void prolong(const tour_search *s, unsigned set) {
    const double *here = best_of(s, set);
    double longer[TOUR_PLACES_MOST];
    for (int to = 0; to < TOUR_PLACES_MOST; to++)
        longer[to] = TOUR_NO_WAY;
    for (unsigned rest = set; rest != 0; rest &= rest - 1) {
        const int from = __builtin_ctz(rest);
        const double *cost = s->cost[from];
        const double so_far = here[from];
        for (int to = 0; to < TOUR_PLACES_MOST; to++) {
            const double length = so_far + cost[to];
            longer[to] = length < longer[to] ? length : longer[to];
        }
    }
    for (unsigned rest = ~set & ((1u << s->places) - 1); rest != 0; rest &= rest - 1) {
        const int to = __builtin_ctz(rest);
        best_of(s, set | 1u << to)[to] = longer[to];
    }
}

/* Back from the last place: the one before it is one that explains the cost; of several the highest, so that machines
 * whose places are all alike are toured in their order. */
static void trace(const tour_search *s, int last, int order[TOUR_PLACES_MOST]) {
    unsigned set = (1u << s->places) - 1;
    for (int position = s->places - 1; position > 0; position--) {
        order[position] = last;
        const double cost = best_of(s, set)[last];
        set &= ~(1u << last);
        int before = -1;
        for (int from = 0; from < s->places; from++)
            if ((set >> from & 1) != 0 && best_of(s, set)[from] + s->cost[from][last] <= cost)
                before = from;
        last = before;
    }
    order[0] = last;
}

void tour_find(tour_search *s, int orders[][TOUR_PLACES_MOST], double costs[TOUR_PLACES_MOST]) {
    const unsigned all = (1u << s->places) - 1;
    for (int to = 0; to < s->places; to++)
        best_of(s, 1u << to)[to] = s->start[to];
    for (unsigned set = 1; set < all; set++)
        prolong(s, set);
    for (int last = 0; last < s->places; last++) {
        costs[last] = best_of(s, all)[last] + s->end[last];
        if (costs[last] < TOUR_NO_WAY)
            trace(s, last, orders[last]);
        else
            costs[last] = TOUR_NO_WAY;
    }
}
