#include "comm/ring_steps.h"

#include "engine/checked.h"

#include <stdlib.h>
#include <string.h>

static route *between(const ring_steps *s, int from, int to) {
    return &s->between[from * s->gpus + to];
}

static bool find_between(ring_steps *s, route *ways, error *e) {
    char from_text[TOPOLOGY_TITLE], to_text[TOPOLOGY_TITLE];
    for (int to = 0; to < s->gpus; to++) {
        route_find(s->t, s->first_gpu + to, ways);
        for (int from = 0; from < s->gpus; from++) {
            *between(s, from, to) = ways[s->first_gpu + from];
            if (from != to && between(s, from, to)->count == 0)
                return error_set(e, EXIT_USAGE, "no link leads from %s to %s; expected a way between all GPUs",
                                 topology_title(s->t, s->first_gpu + from, from_text),
                                 topology_title(s->t, s->first_gpu + to, to_text));
        }
    }
    return true;
}

static route_kind nearest(const route *ways, int count, int except) {
    route_kind least = ROUTE_SOCKETS;
    for (int g = 0; g < count; g++)
        if (g != except && ways[g].count > 0 && ways[g].kind < least)
            least = ways[g].kind;
    return least;
}

static int count_kind(const route *ways, int count, route_kind kind, int *one) {
    int found = 0;
    for (int g = 0; g < count; g++)
        if (ways[g].count > 0 && ways[g].kind == kind)
            found++, *one = g;
    return found;
}

static void append(route *r, const route *more) {
    check(r->count + more->count <= ROUTE_LINKS_MOST, "a route of more than %d links", ROUTE_LINKS_MOST);
    memcpy(r->links + r->count, more->links, (size_t)more->count * sizeof *more->links);
    r->count += more->count;
    r->bandwidth = more->bandwidth < r->bandwidth ? more->bandwidth : r->bandwidth;
}

/* A far GPU hands its bytes over NVLink to the GPU beside the card, which is nearer than the way through a root
 * complex. */
static void consider_proxy(const ring_steps *s, int gpu, int near_gpu, const route *near_way, route *way) {
    if (way->count > 0 && way->kind < ROUTE_PROXY)
        return;
    route over = *between(s, gpu, near_gpu);
    if (over.count == 0 || over.kind != ROUTE_NVLINK || near_way->kind >= ROUTE_PROXY)
        return;
    append(&over, near_way);
    over.kind = ROUTE_PROXY;
    *way = over;
}

/* enter[g], leave[g]: where rings over the card may do so. */
static void find_ways(const ring_steps *s, int card, route *ways, route *enter, route *leave) {
    const int network = s->t->node_count - 1, node = s->first_card + card;
    int one = 0;
    route_find(s->t, node, ways);
    memcpy(leave, ways + s->first_gpu, (size_t)s->gpus * sizeof *leave);
    for (int g = 0; g < s->gpus; g++) {
        route_find(s->t, s->first_gpu + g, ways);
        enter[g] = ways[node];
    }
    const route_kind near = nearest(enter, s->gpus, -1);
    const bool alone = count_kind(enter, s->gpus, near, &one) == 1 && s->gpus > 1;
    const route near_way = leave[one];
    for (int g = 0; alone && g < s->gpus; g++)
        if (g != one)
            consider_proxy(s, g, one, &near_way, &leave[g]);
    const route_kind next = alone ? nearest(leave, s->gpus, one) : near;
    /* The port comes last on the way out and first on the way in. */
    for (int l = 0; l < s->t->link_count; l++) {
        const route port = {.count = 1, .links = {l}, .bandwidth = s->t->links[l].bandwidth};
        for (int g = 0; g < s->gpus; g++) {
            if (s->t->links[l].from == node && s->t->links[l].to == network && leave[g].count > 0)
                append(&leave[g], &port);
            if (s->t->links[l].from == network && s->t->links[l].to == node && enter[g].count > 0) {
                route in = port;
                in.kind = enter[g].kind;
                append(&in, &enter[g]);
                enter[g] = in;
            }
        }
    }
    for (int g = 0; g < s->gpus; g++) {
        if (enter[g].kind != near)
            enter[g].count = 0;
        if (leave[g].kind != next || (alone && g == one))
            leave[g].count = 0;
    }
}

bool ring_steps_find(const topology *t, bool with_cards, ring_steps *s, error *e) {
    *s = (ring_steps){.t = t,
                      .gpus = topology_count(t, TOPOLOGY_GPU),
                      .first_gpu = topology_first(t, TOPOLOGY_GPU),
                      .cards = with_cards ? topology_count(t, TOPOLOGY_CARD) : 0,
                      .first_card = topology_first(t, TOPOLOGY_CARD)};
    if (s->gpus > RING_GPUS_MOST)
        return error_set(e, EXIT_USAGE, "the machine has %d GPUs; rings are found for at most %d", s->gpus,
                         RING_GPUS_MOST);
    if (with_cards && s->cards == 0)
        return error_set(e, EXIT_USAGE,
                         "the machine has no network card, so no ring leaves it; expected one for several nodes");
    s->between = memory_allocate((size_t)(s->gpus * s->gpus) + 1, sizeof *s->between);
    s->enter = memory_allocate((size_t)(s->cards * s->gpus) + 1, sizeof *s->enter);
    s->leave = memory_allocate((size_t)(s->cards * s->gpus) + 1, sizeof *s->leave);
    route *ways = memory_allocate((size_t)t->node_count, sizeof *ways);
    const bool good = find_between(s, ways, e);
    for (int card = 0; good && card < s->cards; card++)
        find_ways(s, card, ways, s->enter + card * s->gpus, s->leave + card * s->gpus);
    free(ways);
    if (!good)
        ring_steps_free(s);
    return good;
}

void ring_steps_free(ring_steps *s) {
    free(s->between);
    free(s->enter);
    free(s->leave);
    *s = (ring_steps){0};
}
