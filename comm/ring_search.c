#include "comm/ring_search.h"

#include "comm/ring_simplex.h"
#include "engine/checked.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PROVED 1e-7 /* a ring that costs less than 1 by no more gains nothing that matters */

/* A packing over the links that hold anything: row r is link[r]. Rings that need another link are left out. */
typedef struct packing_search {
    ring_search *s;
    simplex packing;
    int *link_of_row;
    int *known_of_column;
    /* By link; of links that hold nothing, prohibitive. */
    double *dual;   /* the packing's own prices */
    double *price;  /* those at which tours are looked for */
    double *centre; /* those that gave the best bound, scaled so that the cheapest ring costs 1 */
    double *row_values;
    int considered; /* known rings so far */
} packing_search;

#define PROHIBITIVE 1e6
#define NO_BOUND 1e300

bool ring_search_start(const topology *t, bool with_cards, ring_search *s, error *e) {
    *s = (ring_search){.links = t->link_count, .work = INT64_MAX, .end = 1e300};
    if (!ring_steps_find(t, with_cards, &s->steps, e))
        return false;
    const int places = s->steps.cards > 0 ? s->steps.gpus : s->steps.gpus - 1;
    if (places >= 1)
        tour_start(&s->tour, places);
    return true;
}

void ring_search_free(ring_search *s) {
    tour_free(&s->tour);
    ring_steps_free(&s->steps);
    free(s->known);
    free(s->used);
    *s = (ring_search){0};
}

void ring_packing_free(ring_packing *packing) {
    free(packing->amounts);
    free(packing->price);
    *packing = (ring_packing){0};
}

/* ---- rings ---- */

int ring_search_steps(const ring_search *s, const ring *r, const route *taken[RING_GPUS_MOST + 1]) {
    const ring_steps *steps = &s->steps;
    const int card = r->card - steps->first_card, n = steps->gpus;
    int count = 0;
    if (r->card >= 0)
        taken[count++] = &steps->enter[card * n + r->order[0] - steps->first_gpu];
    for (int i = 0; i + (r->card >= 0) < n; i++)
        taken[count++] =
            &steps->between[(r->order[i] - steps->first_gpu) * n + r->order[(i + 1) % n] - steps->first_gpu];
    if (r->card >= 0)
        taken[count++] = &steps->leave[card * n + r->order[n - 1] - steps->first_gpu];
    return count;
}

static bool is_known(const ring_search *s, const ring *r) {
    for (int k = 0; k < s->count; k++)
        if (s->known[k].card == r->card &&
            memcmp(s->known[k].order, r->order, (size_t)s->steps.gpus * sizeof *r->order) == 0)
            return true;
    return false;
}

static bool add_ring(ring_search *s, const ring *r) {
    const route *taken[RING_GPUS_MOST + 1];
    if (is_known(s, r))
        return false;
    s->known = memory_grow(s->known, (size_t)s->count + 1, sizeof *s->known);
    s->used = memory_grow(s->used, ((size_t)s->count + 1) * (size_t)s->links, sizeof *s->used);
    s->known[s->count] = *r;
    double *used = s->used + (size_t)s->count++ * (size_t)s->links;
    memset(used, 0, (size_t)s->links * sizeof *used);
    const int steps = ring_search_steps(s, r, taken);
    for (int i = 0; i < steps; i++)
        for (int l = 0; l < taken[i]->count; l++)
            used[taken[i]->links[l]] += route_load(s->steps.t, taken[i], l);
    return true;
}

/* ---- the cheapest rings at the present prices ---- */

static double cost_of(const packing_search *p, const double *price, const route *r) {
    double cost = 0;
    if (r->count == 0)
        return TOUR_NO_WAY;
    for (int l = 0; l < r->count; l++)
        cost += price[r->links[l]] * route_load(p->s->steps.t, r, l);
    return cost < PROHIBITIVE ? cost : TOUR_NO_WAY;
}

/* Tours from the card through all GPUs, or (card below 0) from the first GPU through the others. */
static void price_steps(packing_search *p, int card) {
    const ring_steps *steps = &p->s->steps;
    tour_search *tour = &p->s->tour;
    const int n = steps->gpus, skipped = card < 0;
    for (int i = skipped; i < n; i++) {
        tour->start[i - skipped] = cost_of(p, p->price, card < 0 ? &steps->between[i] : &steps->enter[card * n + i]);
        tour->end[i - skipped] = cost_of(p, p->price, card < 0 ? &steps->between[i * n] : &steps->leave[card * n + i]);
        for (int j = skipped; j < n; j++)
            tour->cost[i - skipped][j - skipped] = cost_of(p, p->price, &steps->between[i * n + j]);
    }
}

static bool costs_less_than_one(const packing_search *p, const ring *r) {
    const route *taken[RING_GPUS_MOST + 1];
    const int steps = ring_search_steps(p->s, r, taken);
    double cost = 0;
    for (int i = 0; i < steps; i++)
        cost += cost_of(p, p->dual, taken[i]);
    return cost < 1 - PROVED;
}

/* The cheapest ring for each last GPU; adds those that the packing gains by and returns how many. *least becomes the
 * least cost, if it is less. */
static int add_cheapest(packing_search *p, int card, double *least) {
    int orders[TOUR_PLACES_MOST][TOUR_PLACES_MOST], added = 0;
    double costs[TOUR_PLACES_MOST];
    const ring_steps *steps = &p->s->steps;
    const int skipped = card < 0, places = p->s->tour.places;
    price_steps(p, card);
    tour_find(&p->s->tour, orders, costs);
    p->s->work -= INT64_C(1) << places;
    for (int last = places - 1; last >= 0; last--) {
        *least = costs[last] < *least ? costs[last] : *least;
        if (costs[last] >= TOUR_NO_WAY)
            continue;
        ring r = {.card = card < 0 ? -1 : steps->first_card + card, .order = {steps->first_gpu}};
        for (int i = 0; i < places; i++)
            r.order[i + skipped] = steps->first_gpu + skipped + orders[last][i];
        if (costs_less_than_one(p, &r))
            added += add_ring(p->s, &r);
    }
    return added;
}

static int add_cheapest_of_all(packing_search *p, double *least) {
    int added = 0;
    *least = TOUR_NO_WAY;
    for (int card = p->s->steps.cards > 0 ? 0 : -1; card < p->s->steps.cards; card++)
        added += add_cheapest(p, card, least);
    return added;
}

/* ---- packing ---- */

static void start(packing_search *p, ring_search *s, const double *capacity) {
    const size_t links = (size_t)s->links + 1;
    *p = (packing_search){.s = s,
                          .link_of_row = memory_allocate(links, sizeof *p->link_of_row),
                          .dual = memory_allocate(links, sizeof *p->dual),
                          .price = memory_allocate(links, sizeof *p->price),
                          .centre = memory_allocate(links, sizeof *p->centre),
                          .row_values = memory_allocate(links, sizeof *p->row_values)};
    int rows = 0;
    for (int l = 0; l < s->links; l++) {
        /* At first each link has a price that is the lower the more it holds: the first rings take wide links. */
        p->price[l] = capacity[l] > 0 ? 1e-6 / capacity[l] : PROHIBITIVE;
        p->dual[l] = p->centre[l] = capacity[l] > 0 ? 0 : PROHIBITIVE;
        if (capacity[l] <= 0)
            continue;
        p->link_of_row[rows] = l;
        p->row_values[rows++] = capacity[l];
    }
    simplex_start(&p->packing, rows, p->row_values);
}

/* Rings that have become known since the last time are columns now. */
static void add_columns(packing_search *p) {
    const ring_search *s = p->s;
    p->known_of_column = memory_grow(p->known_of_column, (size_t)s->count + 1, sizeof *p->known_of_column);
    for (; p->considered < s->count; p->considered++) {
        const double *used = s->used + (size_t)p->considered * (size_t)s->links;
        bool possible = true;
        for (int l = 0; l < s->links; l++)
            possible = possible && (used[l] <= 0 || p->price[l] < PROHIBITIVE);
        for (int row = 0; row < p->packing.rows; row++)
            p->row_values[row] = used[p->link_of_row[row]];
        if (!possible)
            continue;
        p->known_of_column[p->packing.columns] = p->considered;
        simplex_add(&p->packing, p->row_values);
    }
}

/* Scaled so that the cheapest ring costs 1, the present prices show that no packing exceeds what all links cost. */
static void keep_bound(packing_search *p, double least, ring_packing *packing) {
    double bound = 0;
    for (int row = 0; row < p->packing.rows; row++)
        bound += p->packing.capacity[row] * p->price[p->link_of_row[row]];
    bound /= least;
    if (packing->bound <= bound)
        return;
    packing->bound = bound;
    for (int l = 0; l < p->s->links; l++)
        p->centre[l] = p->price[l] < PROHIBITIVE ? p->price[l] / least : PROHIBITIVE;
}

static double thread_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

bool ring_search_out_of_time(const ring_search *s) {
    return thread_seconds() >= s->end;
}

static bool may_go_on(const ring_search *s) {
    return s->work > 0 && !ring_search_out_of_time(s);
}

static double solve(packing_search *p) {
    double sum = 0;
    add_columns(p);
    simplex_solve(&p->packing);
    for (int row = 0; row < p->packing.rows; row++) {
        const double price = p->packing.price[row] > 0 ? p->packing.price[row] : 0;
        p->dual[p->link_of_row[row]] = price;
        sum += price * p->packing.capacity[row];
    }
    return sum;
}

/* The packing's own prices jump from one solution to the next. Looking for rings between them and the best prices so
 * far, and at the own ones only where that finds nothing, takes a fraction of the rounds (smoothing, Wentges 1997).
 * Returns whether there is nothing more to find. */
static bool look_for_rings(packing_search *p, double sum, ring_packing *packing) {
    for (double weight = packing->bound < NO_BOUND ? 0.8 : 0;; weight = weight > 0.3 ? weight - 0.25 : 0) {
        double least;
        for (int l = 0; l < p->s->links; l++)
            p->price[l] = weight * p->centre[l] + (1 - weight) * p->dual[l];
        const int added = add_cheapest_of_all(p, &least);
        keep_bound(p, least, packing);
        if (added > 0 || !may_go_on(p->s))
            return false;
        if (weight <= 0 || sum >= packing->bound * (1 - PROVED))
            return true;
    }
}

/* A solution's own prices are those of few links, and easier to understand than the mixed ones: they are the proof,
 * where they prove as much. */
static void prefer_dual(packing_search *p, double sum, ring_packing *packing) {
    double least;
    memcpy(p->price, p->dual, (size_t)p->s->links * sizeof *p->price);
    if (add_cheapest_of_all(p, &least) > 0)
        return;
    packing->bound = sum;
    memcpy(p->centre, p->dual, (size_t)p->s->links * sizeof *p->centre);
}

static void finish(packing_search *p, ring_packing *packing) {
    double *amounts = memory_allocate((size_t)p->packing.columns + 1, sizeof *amounts);
    packing->amounts = memory_grow(packing->amounts, (size_t)p->s->count + 1, sizeof *packing->amounts);
    memset(packing->amounts, 0, (size_t)p->s->count * sizeof *packing->amounts);
    packing->sum = simplex_amounts(&p->packing, amounts);
    for (int c = 0; c < p->packing.columns; c++)
        packing->amounts[p->known_of_column[c]] = amounts[c];
    free(amounts);
    for (int l = 0; l < p->s->links; l++)
        packing->price[l] = p->centre[l] < PROHIBITIVE ? p->centre[l] : 0;
    simplex_free(&p->packing);
    free(p->link_of_row);
    free(p->known_of_column);
    free(p->dual);
    free(p->price);
    free(p->centre);
    free(p->row_values);
}

void ring_search_pack(ring_search *s, const double *capacity, ring_packing *packing) {
    packing_search p;
    double least, sum = 0;
    bool done = false;
    packing->bound = NO_BOUND;
    packing->price = memory_grow(packing->price, (size_t)s->links + 1, sizeof *packing->price);
    start(&p, s, capacity);
    if (may_go_on(s))
        add_cheapest_of_all(&p, &least);
    sum = solve(&p);
    while (!done && may_go_on(s)) {
        done = look_for_rings(&p, sum, packing);
        sum = done ? sum : solve(&p);
    }
    if (done)
        prefer_dual(&p, sum, packing);
    finish(&p, packing);
}

void ring_search_limit(ring_search *s, double seconds, int64_t work) {
    s->end = thread_seconds() + seconds;
    s->work = work;
}
