/* Each ring as a circle of its own. */
#include "launch/topology_svg.h"

#include <math.h>
#include <string.h>

enum {
    RING_CELL = 194,  /* wide */
    RING_ROW = 214,   /* high */
    RINGS_IN_ROW = 6, /* (WIDTH - 2 * MARGIN) / RING_CELL, nearly */
    RINGS_SHOWN = 18
};

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
        svg_label(p, x, y + 3.5, "small light bold", text);
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
    svg_label(p, x, y + c.radius + 30, "name", text);
    if (r->card >= 0) {
        snprintf(text, sizeof text, "%s: in at %d, out at %d", p->t->nodes[r->card].name,
                 p->t->nodes[r->order[0]].number, p->t->nodes[r->order[p->set->gpus - 1]].number);
        svg_label(p, x, y + c.radius + 44, "small", text);
    }
}

static int shown_of(const ring_set *set) {
    return set->count < RINGS_SHOWN ? set->count : RINGS_SHOWN;
}

static int rows_of(const ring_set *set) {
    return (shown_of(set) + RINGS_IN_ROW - 1) / RINGS_IN_ROW;
}

void svg_define_arrows(const picture *p) {
    for (int c = 0; c < RING_COLOURS; c++)
        fprintf(p->out,
                "<marker id=\"arrow%d\" viewBox=\"0 0 8 8\" refX=\"6\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" "
                "markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path d=\"M0 0 L8 4 L0 8 z\" fill=\"%s\"/></marker>\n",
                c, ring_colours[c]);
}

void svg_draw_rings(const picture *p, double top) {
    char text[128];
    const int shown = shown_of(p->set);
    if (shown == 0)
        return;
    svg_label(p, MARGIN, top, "heading", "Rings");
    for (int i = 0; i < shown; i++)
        draw_ring(p, i, MARGIN + RING_CELL * (i % RINGS_IN_ROW + 0.5), top + 96 + RING_ROW * (i / RINGS_IN_ROW));
    if (shown < p->set->count) {
        snprintf(text, sizeof text, "and %d narrower ones", p->set->count - shown);
        svg_label(p, MARGIN, top + 28 + RING_ROW * rows_of(p->set), "start", text);
    }
}

double svg_rings_height(const ring_set *set) {
    const int rows = rows_of(set);
    return rows > 0 ? 84 + RING_ROW * rows + (set->count > RINGS_SHOWN ? 24 : 0) : 10;
}
