/* Where things are. */
#include "launch/topology_svg.h"

#include <math.h>

enum {
    NUMA_Y = 130, /* more where links between distant NUMA nodes pass above */
    LEVEL = 92    /* between a switch and what is above it */
};

static bool in_row(const topology_node *n) {
    return n->kind == TOPOLOGY_GPU || n->kind == TOPOLOGY_CARD;
}

static int depth_of(const topology *t, int node) {
    int depth = 0;
    for (int n = t->nodes[node].parent; n >= 0; n = t->nodes[n].parent)
        depth++;
    return depth;
}

/* Leaves get the next place in the row, everything above the middle of what it holds. */
static double place_below(picture *p, int node, double slot, int *used) {
    double first = -1, last = -1;
    for (int n = 0; n < p->t->node_count; n++) {
        if (p->t->nodes[n].parent != node)
            continue;
        last = place_below(p, n, slot, used);
        first = first < 0 ? last : first;
    }
    if (first < 0) {
        first = last = MARGIN + slot * (*used + 0.5);
        ++*used;
    }
    return p->x[node] = (first + last) / 2;
}

void svg_place_nodes(picture *p) {
    const topology *t = p->t;
    int leaves = 0, deepest = 1, used = 0;
    for (int n = 0; n < t->node_count; n++) {
        bool leaf = t->nodes[n].kind == TOPOLOGY_NUMA || in_row(&t->nodes[n]);
        for (int child = 0; leaf && child < t->node_count; child++)
            leaf = t->nodes[child].parent != n;
        leaves += leaf;
        if (t->nodes[n].kind == TOPOLOGY_SWITCH && depth_of(t, n) + 1 > deepest)
            deepest = depth_of(t, n) + 1;
    }
    const double slot = (double)(WIDTH - 2 * MARGIN) / (leaves > 0 ? leaves : 1);
    p->box = slot * 0.82 < 110 ? slot * 0.82 : 110;
    const int numa = topology_count(t, TOPOLOGY_NUMA);
    p->numa_y = NUMA_Y + (numa > 2 ? RISE * (numa - 2) : 0);
    p->row_y = p->numa_y + deepest * LEVEL;
    for (int n = 0; n < numa; n++)
        place_below(p, n, slot, &used);
    for (int n = 0; n < t->node_count; n++)
        p->y[n] = t->nodes[n].kind == TOPOLOGY_NUMA ? p->numa_y
                  : in_row(&t->nodes[n])            ? p->row_y
                                                    : p->numa_y + depth_of(t, n) * LEVEL;
}

/* An NVSwitch lies under its GPUs, as wide as they are. */
void svg_nvswitch_span(const picture *p, int node, double *left, double *right) {
    *left = WIDTH;
    *right = 0;
    for (int l = 0; l < p->t->link_count; l++) {
        const topology_link *link = &p->t->links[l];
        if (link->to != node || p->t->nodes[link->from].kind != TOPOLOGY_GPU)
            continue;
        *left = fmin(*left, p->x[link->from] - p->box / 2);
        *right = fmax(*right, p->x[link->from] + p->box / 2);
    }
}

/* Returns how far down NVLinks reach. */
double svg_place_nvswitches(picture *p) {
    const int first = topology_first(p->t, TOPOLOGY_NVSWITCH), count = topology_count(p->t, TOPOLOGY_NVSWITCH);
    double bottom = p->row_y + BOX_HEIGHT, before = 0;
    int row = 0;
    for (int n = first; n < first + count; n++) {
        double left, right;
        svg_nvswitch_span(p, n, &left, &right);
        row = left < before ? row + 1 : 0; /* beside the one before where there is room */
        before = right;
        p->x[n] = (left + right) / 2;
        p->y[n] = p->row_y + 106 + row * 60;
        bottom = fmax(bottom, p->y[n] + 24);
    }
    return bottom;
}
