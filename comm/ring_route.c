#include "comm/ring_route.h"

#include "comm/topology_facts.h"
#include "engine/checked.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

typedef struct way {
    int hops; /* INT_MAX: not reached */
    double bandwidth;
    int next; /* link towards the end */
    bool settled;
} way;

typedef struct search {
    const topology *t;
    int end;
    bool nvlinks_only; /* and no GPU in between */
    way *ways;
} search;

/* Whether bytes that arrive at `node` over `link` may go on from there. A GPU passes on what comes by NVLink, to where
 * it has an NVLink itself. */
static bool passes(const search *s, int node, const topology_link *link) {
    const topology_kind kind = s->t->nodes[node].kind;
    if (node == s->end)
        return true;
    if (s->nvlinks_only)
        return kind == TOPOLOGY_NVSWITCH;
    if (kind == TOPOLOGY_GPU)
        return link->kind == TOPOLOGY_NVLINK && s->t->nodes[link->from].kind == TOPOLOGY_GPU &&
               s->ways[node].hops == 1 && s->t->links[s->ways[node].next].kind == TOPOLOGY_NVLINK &&
               s->t->nodes[s->end].kind == TOPOLOGY_GPU;
    return kind != TOPOLOGY_CARD && kind != TOPOLOGY_NETWORK;
}

static bool better(const way *a, const way *b) {
    return a->hops < b->hops || (a->hops == b->hops && a->bandwidth > b->bandwidth);
}

static int nearest_open(const search *s) {
    int nearest = -1;
    for (int n = 0; n < s->t->node_count; n++)
        if (!s->ways[n].settled && s->ways[n].hops != INT_MAX &&
            (nearest < 0 || better(&s->ways[n], &s->ways[nearest])))
            nearest = n;
    return nearest;
}

/* Dijkstra's algorithm from the end backwards: fewest links first, then the widest. */
static void search_ways(const search *s) {
    for (int n = 0; n < s->t->node_count; n++)
        s->ways[n] = (way){.hops = INT_MAX, .next = -1};
    s->ways[s->end] = (way){.bandwidth = 1e30, .next = -1};
    for (int node; (node = nearest_open(s)) >= 0;) {
        s->ways[node].settled = true;
        for (int l = 0; l < s->t->link_count; l++) {
            const topology_link *link = &s->t->links[l];
            if (link->to != node || (s->nvlinks_only && link->kind != TOPOLOGY_NVLINK) || !passes(s, node, link))
                continue;
            const way *here = &s->ways[node];
            way found = {.hops = here->hops + 1 + link->bridges, .bandwidth = here->bandwidth, .next = l};
            if (link->bandwidth < found.bandwidth)
                found.bandwidth = link->bandwidth;
            if (!s->ways[link->from].settled && better(&found, &s->ways[link->from]))
                s->ways[link->from] = found;
        }
    }
}

static route_kind kind_of(const topology *t, const route *r) {
    int processors = 0, switches = 0, gpus = 0, others = 0;
    for (int i = 0; i < r->count; i++) {
        const topology_link *link = &t->links[r->links[i]];
        const topology_kind kind = t->nodes[link->to].kind;
        processors += kind == TOPOLOGY_NUMA;
        switches += link->bridges + (kind == TOPOLOGY_SWITCH);
        gpus += kind == TOPOLOGY_GPU && i + 1 < r->count;
        others += link->kind != TOPOLOGY_NVLINK;
    }
    if (processors > 0)
        return processors == 1 ? ROUTE_NUMA : ROUTE_SOCKETS;
    if (others == 0)
        return gpus == 0 ? ROUTE_NVLINK : ROUTE_GPU;
    return switches <= 1 ? ROUTE_SWITCH : ROUTE_BRIDGES;
}

double route_load(const topology *t, const route *r, int link) {
    if (r->kind != ROUTE_NUMA || t->links[r->links[link]].kind != TOPOLOGY_PCI ||
        t->nodes[t->links[r->links[0]].from].kind != TOPOLOGY_GPU ||
        t->nodes[t->links[r->links[r->count - 1]].to].kind != TOPOLOGY_GPU)
        return 1;
    for (int i = 0; i < r->count; i++)
        if (t->nodes[t->links[r->links[i]].to].relays_slowly)
            return FACTS_RELAY_COST;
    return 1;
}

static void follow(const search *s, int from, route *r) {
    r->count = 0;
    if (s->ways[from].hops == INT_MAX)
        return;
    for (int node = from; node != s->end; node = s->t->links[s->ways[node].next].to) {
        check(r->count < ROUTE_LINKS_MOST, "a route of more than %d links", ROUTE_LINKS_MOST);
        r->links[r->count++] = s->ways[node].next;
    }
    r->kind = kind_of(s->t, r);
    r->bandwidth = 1e30;
    for (int i = 0; i < r->count; i++) {
        const double bandwidth = s->t->links[r->links[i]].bandwidth / route_load(s->t, r, i);
        r->bandwidth = bandwidth < r->bandwidth ? bandwidth : r->bandwidth;
    }
}

void route_find(const topology *t, int to, route *ways) {
    search s = {.t = t, .end = to, .ways = memory_allocate((size_t)t->node_count, sizeof *s.ways)};
    search_ways(&s);
    for (int from = 0; from < t->node_count; from++)
        follow(&s, from, &ways[from]);
    s.nvlinks_only = true;
    search_ways(&s);
    for (int from = 0; from < t->node_count && t->nodes[to].kind == TOPOLOGY_GPU; from++)
        if (t->nodes[from].kind == TOPOLOGY_GPU && s.ways[from].hops != INT_MAX)
            follow(&s, from, &ways[from]);
    free(s.ways);
}

const char *route_name(route_kind kind) {
    static const char *const names[] = {"NVL", "NVB", "PIX", "PXB", "PXN", "PHB", "SYS"};
    return names[kind];
}
