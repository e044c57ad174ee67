/* Links as lines and arcs. */
#include "launch/topology_svg.h"

#include <math.h>

enum { PORT_LENGTH = 44, SHAPE = 256 };

/* From light to dark as more of a link is taken. */
void svg_colour(double share, char text[8]) {
    static const double stops[][3] = {{0xd9, 0xdd, 0xe3}, {0xf3, 0xc9, 0x6b}, {0xe8, 0x8a, 0x3a}, {0xb3, 0x26, 0x1e}};
    const double place = (share < 0 ? 0 : share > 1 ? 1 : share) * 3;
    const int stop = place >= 3 ? 2 : (int)place;
    int rgb[3];
    for (int c = 0; c < 3; c++)
        rgb[c] = (int)(stops[stop][c] + (place - stop) * (stops[stop + 1][c] - stops[stop][c]) + 0.5);
    snprintf(text, 8, "#%02x%02x%02x", rgb[0], rgb[1], rgb[2]);
}

double svg_thickness(const picture *p, double bandwidth) {
    return 1.5 + 9 * sqrt(bandwidth / p->widest);
}

static double share_of(const picture *p, int pair) {
    const double there = p->set->load[pair] / p->t->links[pair].bandwidth;
    const double back = p->set->load[pair + 1] / p->t->links[pair + 1].bandwidth;
    return there > back ? there : back;
}

/* Links that prove the limit have a dark outline, which is a wider line below. */
static bool is_limit(const picture *p, int pair) {
    const double least = 1e-6 * p->set->bound;
    return p->set->price[pair] * p->t->links[pair].bandwidth > least ||
           p->set->price[pair + 1] * p->t->links[pair + 1].bandwidth > least;
}

/* shape: the element up to its colours. */
static void draw_link(const picture *p, int pair, const char *shape) {
    char colour[8], from[TOPOLOGY_TITLE], to[TOPOLOGY_TITLE];
    const double width = svg_thickness(p, p->t->links[pair].bandwidth);
    if (is_limit(p, pair))
        fprintf(p->out, "%s fill=\"none\" stroke=\"#25303b\" stroke-width=\"%.1f\"/>\n", shape, width + 5);
    svg_colour(share_of(p, pair), colour);
    fprintf(p->out, "%s fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\"><title>", shape, colour, width);
    svg_escape(topology_title(p->t, p->t->links[pair].from, from), p->out);
    fputs(" - ", p->out);
    svg_escape(topology_title(p->t, p->t->links[pair].to, to), p->out);
    fprintf(p->out, ": %.4g GB/s, rings take %.4g and %.4g</title></%s>\n", p->t->links[pair].bandwidth,
            p->set->load[pair], p->set->load[pair + 1], shape[1] == 'l' ? "line" : "path");
}

static void line(const picture *p, int pair, double x1, double y1, double x2, double y2) {
    char shape[SHAPE];
    snprintf(shape, sizeof shape, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"", x1, y1, x2, y2);
    draw_link(p, pair, shape);
}

static void bandwidth_label(const picture *p, double x, double y, double bandwidth) {
    char text[TOPOLOGY_NUMBER];
    svg_label(p, x, y, "bandwidth", topology_number(bandwidth, text));
}

static void draw_tree_links(const picture *p) {
    for (int l = 0; l < p->t->link_count; l += 2) {
        const topology_link *link = &p->t->links[l];
        if (link->kind != TOPOLOGY_PCI)
            continue;
        const double x1 = p->x[link->from], y1 = p->y[link->from], x2 = p->x[link->to], y2 = p->y[link->to];
        line(p, l, x1, y1, x2, y2);
    }
    for (int l = 0; l < p->t->link_count; l += 2) {
        const topology_link *link = &p->t->links[l];
        const double near = 0.62; /* nearer to the lower end, where lines are apart */
        if (link->kind == TOPOLOGY_PCI)
            bandwidth_label(p, p->x[link->from] * near + p->x[link->to] * (1 - near),
                            p->y[link->from] * near + p->y[link->to] * (1 - near) + 4, link->bandwidth);
    }
}

/* How far above its ends the middle of a link between NUMA nodes is. */
static double rise_of(const topology_link *link) {
    return RISE * (link->to - link->from - 1);
}

static void draw_socket_links(const picture *p) {
    char shape[SHAPE];
    for (int l = 0; l < p->t->link_count; l += 2) {
        const topology_link *link = &p->t->links[l];
        const double x1 = p->x[link->from], x2 = p->x[link->to], y = p->numa_y;
        if (link->kind != TOPOLOGY_SOCKET)
            continue;
        snprintf(shape, sizeof shape, "<path d=\"M%.1f %.1f Q%.1f %.1f %.1f %.1f\"", x1, y, (x1 + x2) / 2,
                 y - 2 * rise_of(link) - (rise_of(link) > 0 ? BOX_HEIGHT : 0), x2, y);
        draw_link(p, l, shape);
    }
    for (int l = 0; l < p->t->link_count; l += 2) {
        const topology_link *link = &p->t->links[l];
        if (link->kind == TOPOLOGY_SOCKET)
            bandwidth_label(p, (p->x[link->from] + p->x[link->to]) / 2,
                            p->numa_y + 4 - rise_of(link) - (rise_of(link) > 0 ? BOX_HEIGHT / 2.0 : 0),
                            link->bandwidth);
    }
}

static double arc_depth(const picture *p, const topology_link *link) {
    return 26 + 0.17 * fabs(p->x[link->from] - p->x[link->to]);
}

/* Arcs below the row between GPUs, straight lines to NVSwitches, curves up to processors. */
static void draw_nvlinks(const picture *p) {
    char shape[SHAPE];
    for (int l = 0; l < p->t->link_count; l += 2) {
        const topology_link *link = &p->t->links[l];
        const topology_kind from = p->t->nodes[link->from].kind, to = p->t->nodes[link->to].kind;
        if (link->kind != TOPOLOGY_NVLINK)
            continue;
        const double x1 = p->x[link->from], y1 = p->y[link->from], x2 = p->x[link->to], y2 = p->y[link->to];
        if (from == TOPOLOGY_GPU && to == TOPOLOGY_GPU) {
            const double y = p->row_y + BOX_HEIGHT / 2.0, depth = arc_depth(p, link);
            snprintf(shape, sizeof shape, "<path d=\"M%.1f %.1f C%.1f %.1f %.1f %.1f %.1f %.1f\"", x1, y, x1,
                     y + depth * 1.33, x2, y + depth * 1.33, x2, y);
            draw_link(p, l, shape);
        } else if (from == TOPOLOGY_NUMA) {
            const double aside = x2 < x1 ? -26 : 26;
            snprintf(shape, sizeof shape, "<path d=\"M%.1f %.1f Q%.1f %.1f %.1f %.1f\"", x1 + aside, y1, x2 + aside,
                     (y1 + y2) / 2, x2 + aside / 2, y2);
            draw_link(p, l, shape);
        } else if (from == TOPOLOGY_NVSWITCH && to == TOPOLOGY_GPU) {
            line(p, l, x2, y1, x2, y2);
            bandwidth_label(p, x2, (y1 + y2) / 2 + 4, link->bandwidth);
        } else {
            line(p, l, x1, y1, x2, y2);
            bandwidth_label(p, (x1 + x2) / 2, (y1 + y2) / 2 + 4, link->bandwidth);
        }
    }
}

/* The ways to other nodes: downwards from each card. */
static void draw_ports(const picture *p) {
    for (int l = 0; l < p->t->link_count; l += 2) {
        const topology_link *link = &p->t->links[l];
        if (link->kind != TOPOLOGY_PORT)
            continue;
        const double x = p->x[link->from], y = p->row_y + PORT_LENGTH;
        line(p, l, x, p->row_y, x, y);
        bandwidth_label(p, x, y + 12, link->bandwidth);
    }
}

double svg_deepest_arc(const picture *p) {
    double deepest = 0;
    for (int l = 0; l < p->t->link_count; l += 2)
        if (p->t->links[l].kind == TOPOLOGY_NVLINK && p->t->nodes[p->t->links[l].from].kind == TOPOLOGY_GPU &&
            p->t->nodes[p->t->links[l].to].kind == TOPOLOGY_GPU)
            deepest = fmax(deepest, arc_depth(p, &p->t->links[l]));
    return deepest;
}

void svg_draw_links(const picture *p, bool ports) {
    draw_socket_links(p);
    draw_tree_links(p);
    draw_nvlinks(p);
    if (ports)
        draw_ports(p);
}
