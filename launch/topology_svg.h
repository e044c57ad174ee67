/* Private to topology_svg*.c: the machine as a picture. NUMA nodes above, PCIe switches below them, GPUs and cards in
 * one row, NVLinks as arcs or an NVSwitch as a bar beneath; then each ring as a circle of its own. A link is the wider
 * the more it carries, and the darker the more of that the rings take. */
#ifndef FSDP_LAUNCH_TOPOLOGY_SVG_H
#define FSDP_LAUNCH_TOPOLOGY_SVG_H

#include "launch/topology_text.h"

enum {
    WIDTH = 1240,
    MARGIN = 40,
    RISE = 22,      /* of a link between distant NUMA nodes, for each node that it passes */
    BOX_HEIGHT = 44 /* of NUMA nodes and GPUs */
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

/* Text around x, or from x on if the class says so; what XML would misread is escaped. */
void svg_label(const picture *p, double x, double y, const char *class, const char *text);
void svg_escape(const char *text, FILE *out);

/* Sets everything's place but that of NVSwitches. */
void svg_place_nodes(picture *p);
/* An NVSwitch lies under its GPUs, as wide as they are. The second returns how far down NVLinks to them reach. */
void svg_nvswitch_span(const picture *p, int node, double *left, double *right);
double svg_place_nvswitches(picture *p);

/* ports: those to other nodes, too. */
void svg_draw_links(const picture *p, bool ports);
double svg_deepest_arc(const picture *p);    /* how far below the GPUs NVLinks among them reach */
void svg_colour(double share, char text[8]); /* of a link, as more of it is taken: "#d9dde3" */
double svg_thickness(const picture *p, double bandwidth);

/* Inside <defs>, what rings need. Then the rings, from y = top down; and how much lower that makes the picture. */
void svg_define_arrows(const picture *p);
void svg_draw_rings(const picture *p, double top);
double svg_rings_height(const ring_set *set);

#endif
