/* The machine as a picture: NUMA nodes above, PCIe switches below them, GPUs and cards in one row, NVLinks as arcs or
 * an NVSwitch as a bar beneath; then each ring as a circle of its own. A link is the wider the more it carries, and the
 * darker the more of that the rings take. */
#include "launch/topology_text.h"

#include "engine/checked.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    WIDTH = 1240,
    MARGIN = 40,
    NUMA_Y = 130,    /* more where links between distant NUMA nodes pass above */
    RISE = 22,       /* of such a link, for each node that it passes */
    LEVEL = 92,      /* between a switch and what is above it */
    BOX_HEIGHT = 44, /* of NUMA nodes and GPUs */
    PORT_LENGTH = 44,
    RING_CELL = 194,  /* wide */
    RING_ROW = 214,   /* high */
    RINGS_IN_ROW = 6, /* (WIDTH - 2 * MARGIN) / RING_CELL, nearly */
    RINGS_SHOWN = 18
};

typedef struct picture {
    const topology *t;
    const ring_set *set;
    FILE *out;
    double *x, *y;        /* of the middle of each node */
    double box;           /* width of a GPU or card */
    double numa_y, row_y; /* of NUMA nodes; of GPUs and cards */
    double widest;        /* GB/s of the widest link drawn */
} picture;

/* ---- text and colours ---- */

static void escape(const char *text, FILE *out) {
    for (; *text != '\0'; text++) {
        if (*text == '<' || *text == '>' || *text == '&')
            fprintf(out, "&#%d;", *text);
        else if ((unsigned char)*text >= ' ')
            fputc(*text, out);
    }
}

static void label(const picture *p, double x, double y, const char *class, const char *text) {
    fprintf(p->out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
    escape(text, p->out);
    fputs("</text>\n", p->out);
}

/* From light to dark as more of a link is taken. */
static void colour_of(double share, char text[8]) {
    static const double stops[][3] = {{0xd9, 0xdd, 0xe3}, {0xf3, 0xc9, 0x6b}, {0xe8, 0x8a, 0x3a}, {0xb3, 0x26, 0x1e}};
    const double place = (share < 0 ? 0 : share > 1 ? 1 : share) * 3;
    const int stop = place >= 3 ? 2 : (int)place;
    int rgb[3];
    for (int c = 0; c < 3; c++)
        rgb[c] = (int)(stops[stop][c] + (place - stop) * (stops[stop + 1][c] - stops[stop][c]) + 0.5);
    snprintf(text, 8, "#%02x%02x%02x", rgb[0], rgb[1], rgb[2]);
}

static double thickness(const picture *p, double bandwidth) {
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
    const double width = thickness(p, p->t->links[pair].bandwidth);
    if (is_limit(p, pair))
        fprintf(p->out, "%s fill=\"none\" stroke=\"#25303b\" stroke-width=\"%.1f\"/>\n", shape, width + 5);
    colour_of(share_of(p, pair), colour);
    fprintf(p->out, "%s fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\"><title>", shape, colour, width);
    escape(topology_title(p->t, p->t->links[pair].from, from), p->out);
    fputs(" - ", p->out);
    escape(topology_title(p->t, p->t->links[pair].to, to), p->out);
    fprintf(p->out, ": %.4g GB/s, rings take %.4g and %.4g</title></%s>\n", p->t->links[pair].bandwidth,
            p->set->load[pair], p->set->load[pair + 1], shape[1] == 'l' ? "line" : "path");
}

enum { SHAPE = 256 };

static void line(const picture *p, int pair, double x1, double y1, double x2, double y2) {
    char shape[SHAPE];
    snprintf(shape, sizeof shape, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"", x1, y1, x2, y2);
    draw_link(p, pair, shape);
}

static void bandwidth_label(const picture *p, double x, double y, double bandwidth) {
    char text[TOPOLOGY_NUMBER];
    label(p, x, y, "bandwidth", topology_number(bandwidth, text));
}

/* ---- where things are ---- */

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

static void place_nodes(picture *p) {
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
static void nvswitch_span(const picture *p, int node, double *left, double *right) {
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
static double place_nvswitches(picture *p) {
    const int first = topology_first(p->t, TOPOLOGY_NVSWITCH), count = topology_count(p->t, TOPOLOGY_NVSWITCH);
    double bottom = p->row_y + BOX_HEIGHT, before = 0;
    int row = 0;
    for (int n = first; n < first + count; n++) {
        double left, right;
        nvswitch_span(p, n, &left, &right);
        row = left < before ? row + 1 : 0; /* beside the one before where there is room */
        before = right;
        p->x[n] = (left + right) / 2;
        p->y[n] = p->row_y + 106 + row * 60;
        bottom = fmax(bottom, p->y[n] + 24);
    }
    return bottom;
}

/* ---- links ---- */

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

static double deepest_arc(const picture *p) {
    double deepest = 0;
    for (int l = 0; l < p->t->link_count; l += 2)
        if (p->t->links[l].kind == TOPOLOGY_NVLINK && p->t->nodes[p->t->links[l].from].kind == TOPOLOGY_GPU &&
            p->t->nodes[p->t->links[l].to].kind == TOPOLOGY_GPU)
            deepest = fmax(deepest, arc_depth(p, &p->t->links[l]));
    return deepest;
}

/* ---- boxes ---- */

static void box(const picture *p, double x, double y, double width, double height, const char *class) {
    fprintf(p->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"7\" class=\"%s\"/>\n",
            x - width / 2, y - height / 2, width, height, class);
}

static void draw_node(const picture *p, int node) {
    const topology_node *n = &p->t->nodes[node];
    const double x = p->x[node], y = p->y[node];
    char title[TOPOLOGY_TITLE];
    topology_title(p->t, node, title);
    switch (n->kind) {
    case TOPOLOGY_NUMA:
        box(p, x, y, 132, BOX_HEIGHT, "numa");
        label(p, x, y + 5, "name light", title);
        break;
    case TOPOLOGY_SWITCH:
        box(p, x, y, 74, 32, "switch");
        label(p, x, y - 2, "small light", "switch");
        label(p, x, y + 10, "small light", n->bus + (strncmp(n->bus, "0000:", 5) == 0 ? 5 : 0));
        break;
    case TOPOLOGY_NVSWITCH: {
        double left, right;
        nvswitch_span(p, node, &left, &right);
        box(p, x, y, right - left, 34, "nvswitch");
        label(p, x, y + 5, "name light", title);
        break;
    }
    case TOPOLOGY_GPU:
        box(p, x, y, p->box, BOX_HEIGHT, "gpu");
        label(p, x, p->box > 80 ? y - 2 : y + 5, "name light", p->box > 52 ? title : title + strlen("GPU "));
        if (p->box > 80)
            label(p, x, y + 13, "small light", n->bus);
        break;
    case TOPOLOGY_CARD:
        box(p, x, y, p->box * 0.9, BOX_HEIGHT * 0.8, "card");
        label(p, x, y + 4, p->box > 48 ? "small light" : "tiny light", n->name[0] != '\0' ? n->name : "card");
        break;
    case TOPOLOGY_NETWORK:
        break;
    }
}

/* ---- rings ---- */

static const char *const ring_colours[] = {"#2563a8", "#b3261e", "#2e7d4f", "#8a4fa3", "#c2701c", "#147d86"};
enum { RING_COLOURS = sizeof ring_colours / sizeof *ring_colours };

typedef struct circle {
    double x, y, radius, dot; /* dot: radius of a GPU's circle on it */
} circle;

/* Where on the circle a GPU is: by its device number, the same in every ring. */
static double angle_of(const picture *p, int node) {
    const int first = topology_first(p->t, TOPOLOGY_GPU);
    int before = 0;
    for (int g = first; g < first + p->set->gpus; g++)
        before += p->t->nodes[g].number < p->t->nodes[node].number;
    return 2 * M_PI * before / p->set->gpus - M_PI / 2;
}

/* An arrow from dot to dot, bent a little so that there and back stay apart. */
static void draw_arrow(const picture *p, const circle *c, int from, int to, int colour, double width) {
    const double a = angle_of(p, from), b = angle_of(p, to);
    const double x1 = c->x + c->radius * cos(a), y1 = c->y + c->radius * sin(a);
    const double x2 = c->x + c->radius * cos(b), y2 = c->y + c->radius * sin(b);
    const double length = hypot(x2 - x1, y2 - y1), ux = (x2 - x1) / length, uy = (y2 - y1) / length;
    const double bend = length > 4 * c->dot ? 0.12 * length : 0, mx = (x1 + x2) / 2 - uy * bend,
                 my = (y1 + y2) / 2 + ux * bend;
    const double start = c->dot + 0.5, end = c->dot + 2;
    fprintf(p->out,
            "<path d=\"M%.1f %.1f Q%.1f %.1f %.1f %.1f\" fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\" "
            "marker-end=\"url(#arrow%d)\"/>\n",
            x1 + ux * start, y1 + uy * start, mx, my, x2 - ux * end, y2 - uy * end, ring_colours[colour], width,
            colour);
}

static void draw_dots(const picture *p, const ring *r, const circle *c) {
    char text[16];
    for (int i = 0; i < p->set->gpus; i++) {
        const double angle = angle_of(p, r->order[i]);
        const double x = c->x + c->radius * cos(angle), y = c->y + c->radius * sin(angle);
        const bool gate = r->card >= 0 && (i == 0 || i == p->set->gpus - 1);
        fprintf(p->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" class=\"%s\"/>\n", x, y, c->dot,
                gate ? "card" : "gpu");
        snprintf(text, sizeof text, "%d", p->t->nodes[r->order[i]].number);
        label(p, x, y + 3.5, "small light bold", text);
    }
}

static void draw_ring(const picture *p, int index, double x, double y) {
    const ring *r = &p->set->rings[index];
    const circle c = {.x = x, .y = y, .radius = p->set->gpus > 10 ? 72 : 62, .dot = p->set->gpus > 10 ? 8.5 : 11};
    const double width = (p->set->gpus > 10 ? 0.6 : 1) * (1.4 + 2.6 * r->bandwidth / p->set->rings[0].bandwidth);
    const int steps = r->card >= 0 ? p->set->gpus - 1 : p->set->gpus;
    char text[192], number[TOPOLOGY_NUMBER];
    for (int i = 0; i < steps; i++)
        draw_arrow(p, &c, r->order[i], r->order[(i + 1) % p->set->gpus], index % RING_COLOURS, width);
    draw_dots(p, r, &c);
    snprintf(text, sizeof text, "%s GB/s", topology_number(r->bandwidth, number));
    label(p, x, y + c.radius + 30, "name", text);
    if (r->card >= 0) {
        snprintf(text, sizeof text, "%s: in at %d, out at %d", p->t->nodes[r->card].name,
                 p->t->nodes[r->order[0]].number, p->t->nodes[r->order[p->set->gpus - 1]].number);
        label(p, x, y + c.radius + 44, "small", text);
    }
}

static double draw_rings(const picture *p, double top) {
    char text[128];
    const int shown = p->set->count < RINGS_SHOWN ? p->set->count : RINGS_SHOWN;
    label(p, MARGIN, top, "heading", "Rings");
    for (int i = 0; i < shown; i++)
        draw_ring(p, i, MARGIN + RING_CELL * (i % RINGS_IN_ROW + 0.5), top + 96 + RING_ROW * (i / RINGS_IN_ROW));
    top += 28 + RING_ROW * ((shown + RINGS_IN_ROW - 1) / RINGS_IN_ROW);
    if (shown < p->set->count) {
        snprintf(text, sizeof text, "and %d narrower ones", p->set->count - shown);
        label(p, MARGIN, top, "start", text);
        top += 24;
    }
    return top;
}

/* ---- the frame ---- */

static void draw_legend(const picture *p, double y) {
    char colour[8];
    label(p, MARGIN, y, "start",
          "Numbers: GB/s each way. Outlined: what limits the rings. Colour: how much of a link they take");
    for (int i = 0; i < 40; i++) {
        colour_of(i / 39.0, colour);
        fprintf(p->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"4.2\" height=\"11\" fill=\"%s\"/>\n", 650 + i * 4.0,
                y - 10, colour);
    }
    label(p, 620, y, "start", "0 %");
    label(p, 816, y, "start", "100 %");
    double x = 880, done[4];
    int count = 0;
    for (int l = 0; l < p->t->link_count && count < 3; l += 2) {
        bool new = p->t->links[l].kind == TOPOLOGY_NVLINK;
        for (int i = 0; i < count; i++)
            new = new &&fabs(done[i] - p->t->links[l].bandwidth) > 1e-9;
        if (!new)
            continue;
        char text[64], number[TOPOLOGY_NUMBER];
        done[count++] = p->t->links[l].bandwidth;
        fprintf(p->out,
                "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#8a93a0\" stroke-width=\"%.1f\"/>\n", x,
                y - 4, x + 26, y - 4, thickness(p, p->t->links[l].bandwidth));
        snprintf(text, sizeof text, "NVLink %s", topology_number(p->t->links[l].bandwidth, number));
        label(p, x + 32, y, "start", text);
        x += 100;
    }
}

static void write_start(const picture *p, double height) {
    fprintf(p->out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" viewBox=\"0 0 %d %.0f\">\n"
            "<style>\n"
            "text { font-family: 'DejaVu Sans', Verdana, sans-serif; font-size: 12px; fill: #25303b; text-anchor: "
            "middle }\n"
            ".title { font-size: 20px; font-weight: bold; text-anchor: start }\n"
            ".heading { font-size: 15px; font-weight: bold; text-anchor: start }\n"
            ".start { text-anchor: start }\n"
            ".name { font-weight: bold; font-size: 13px }\n"
            ".small { font-size: 10px } .tiny { font-size: 8px } .bold { font-weight: bold } .light { fill: #ffffff }\n"
            ".bandwidth { font-size: 11px; paint-order: stroke; stroke: #ffffff; stroke-width: 4px }\n"
            ".numa { fill: #3a4a5c } .switch { fill: #7a6a52 } .gpu { fill: #2e7d4f } .card { fill: #2563a8 }\n"
            ".nvswitch { fill: #1f5c3a }\n"
            "</style>\n<defs>\n",
            WIDTH, height, WIDTH, height);
    for (int c = 0; c < RING_COLOURS; c++)
        fprintf(p->out,
                "<marker id=\"arrow%d\" viewBox=\"0 0 8 8\" refX=\"6\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" "
                "markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path d=\"M0 0 L8 4 L0 8 z\" fill=\"%s\"/></marker>\n",
                c, ring_colours[c]);
    fputs("</defs>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n", p->out);
}

static void write_heading(const picture *p, const char *title, int nodes) {
    char text[256], number[TOPOLOGY_NUMBER], bound[TOPOLOGY_NUMBER];
    const char *slash = strrchr(title, '/');
    label(p, MARGIN, 42, "title", slash != NULL ? slash + 1 : title);
    if (p->set->count == 0)
        snprintf(text, sizeof text, "%d GPU%s, no rings", p->set->gpus, p->set->gpus == 1 ? "" : "s");
    else
        snprintf(text, sizeof text, "%d GPUs%s; %d ring%s %s GB/s; no rings carry more than %s", p->set->gpus,
                 nodes > 1 ? " on each node" : "", p->set->count, p->set->count == 1 ? " carries" : "s together carry",
                 topology_number(p->set->total, number), topology_number(p->set->bound, bound));
    label(p, MARGIN, 64, "start", text);
}

static double widest_link(const topology *t) {
    double widest = 1e-9;
    for (int l = 0; l < t->link_count; l++)
        widest = fmax(widest, t->links[l].bandwidth);
    return widest;
}

void topology_write_svg(const topology *t, const ring_set *set, const char *title, int nodes, FILE *out) {
    picture p = {.t = t, .set = set, .out = out, .widest = widest_link(t)};
    p.x = memory_allocate((size_t)t->node_count + 1, sizeof *p.x);
    p.y = memory_allocate((size_t)t->node_count + 1, sizeof *p.y);
    place_nodes(&p);
    double bottom = fmax(place_nvswitches(&p), p.row_y + BOX_HEIGHT / 2.0 + deepest_arc(&p)) + 40;
    const int rows = ((set->count < RINGS_SHOWN ? set->count : RINGS_SHOWN) + RINGS_IN_ROW - 1) / RINGS_IN_ROW;
    write_start(&p, bottom + (rows > 0 ? 84 + RING_ROW * rows + (set->count > RINGS_SHOWN ? 24 : 0) : 10));
    write_heading(&p, title, nodes);
    draw_socket_links(&p);
    draw_tree_links(&p);
    draw_nvlinks(&p);
    if (nodes > 1)
        draw_ports(&p);
    for (int n = 0; n < t->node_count; n++)
        draw_node(&p, n);
    draw_legend(&p, bottom);
    if (rows > 0)
        draw_rings(&p, bottom + 44);
    fputs("</svg>\n", out);
    free(p.x);
    free(p.y);
}
