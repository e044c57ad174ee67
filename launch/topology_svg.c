#include "launch/topology_svg.h"

#include "engine/checked.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void svg_escape(const char *text, FILE *out) {
    for (; *text != '\0'; text++) {
        if (*text == '<' || *text == '>' || *text == '&')
            fprintf(out, "&#%d;", *text);
        else if ((unsigned char)*text >= ' ')
            fputc(*text, out);
    }
}

void svg_label(const picture *p, double x, double y, const char *class, const char *text) {
    fprintf(p->out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
    svg_escape(text, p->out);
    fputs("</text>\n", p->out);
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
        svg_label(p, x, y + 5, "name light", title);
        break;
    case TOPOLOGY_SWITCH:
        box(p, x, y, 74, 32, "switch");
        svg_label(p, x, y - 2, "small light", "switch");
        svg_label(p, x, y + 10, "small light", n->bus + (strncmp(n->bus, "0000:", 5) == 0 ? 5 : 0));
        break;
    case TOPOLOGY_NVSWITCH: {
        double left, right;
        svg_nvswitch_span(p, node, &left, &right);
        box(p, x, y, right - left, 34, "nvswitch");
        svg_label(p, x, y + 5, "name light", title);
        break;
    }
    case TOPOLOGY_GPU:
        box(p, x, y, p->box, BOX_HEIGHT, "gpu");
        svg_label(p, x, p->box > 80 ? y - 2 : y + 5, "name light", p->box > 52 ? title : title + strlen("GPU "));
        if (p->box > 80)
            svg_label(p, x, y + 13, "small light", n->bus);
        break;
    case TOPOLOGY_CARD:
        box(p, x, y, p->box * 0.9, BOX_HEIGHT * 0.8, "card");
        svg_label(p, x, y + 4, p->box > 48 ? "small light" : "tiny light", n->name[0] != '\0' ? n->name : "card");
        break;
    case TOPOLOGY_NETWORK:
        break;
    }
}

/* ---- the frame ---- */

static void draw_legend(const picture *p, double y) {
    char colour[8];
    svg_label(p, MARGIN, y, "start",
              "Numbers: GB/s each way. Outlined: what limits the rings. Colour: how much of a link they take");
    for (int i = 0; i < 40; i++) {
        svg_colour(i / 39.0, colour);
        fprintf(p->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"4.2\" height=\"11\" fill=\"%s\"/>\n", 650 + i * 4.0,
                y - 10, colour);
    }
    svg_label(p, 620, y, "start", "0 %");
    svg_label(p, 816, y, "start", "100 %");
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
                y - 4, x + 26, y - 4, svg_thickness(p, p->t->links[l].bandwidth));
        snprintf(text, sizeof text, "NVLink %s", topology_number(p->t->links[l].bandwidth, number));
        svg_label(p, x + 32, y, "start", text);
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
    svg_define_arrows(p);
    fputs("</defs>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n", p->out);
}

static void write_heading(const picture *p, const char *title, int nodes) {
    char text[256], number[TOPOLOGY_NUMBER], bound[TOPOLOGY_NUMBER];
    const char *slash = strrchr(title, '/');
    svg_label(p, MARGIN, 42, "title", slash != NULL ? slash + 1 : title);
    if (p->set->count == 0)
        snprintf(text, sizeof text, "%d GPU%s, no rings", p->set->gpus, p->set->gpus == 1 ? "" : "s");
    else
        snprintf(text, sizeof text, "%d GPUs%s; %d ring%s %s GB/s; no rings carry more than %s", p->set->gpus,
                 nodes > 1 ? " on each node" : "", p->set->count, p->set->count == 1 ? " carries" : "s together carry",
                 topology_number(p->set->total, number), topology_number(p->set->bound, bound));
    svg_label(p, MARGIN, 64, "start", text);
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
    svg_place_nodes(&p);
    double bottom = fmax(svg_place_nvswitches(&p), p.row_y + BOX_HEIGHT / 2.0 + svg_deepest_arc(&p)) + 40;
    write_start(&p, bottom + svg_rings_height(set));
    write_heading(&p, title, nodes);
    svg_draw_links(&p, nodes > 1);
    for (int n = 0; n < t->node_count; n++)
        draw_node(&p, n);
    draw_legend(&p, bottom);
    svg_draw_rings(&p, bottom + 44);
    fputs("</svg>\n", out);
    free(p.x);
    free(p.y);
}
