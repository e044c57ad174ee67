/* Draws how a run scales: speed-up beside the ideal line, and what the steps are made of. */
#include "launch/scaling.h"

#include <math.h>

static const char *const colours[TERM_COUNT] = {
    [TERM_COMPUTE] = "#4c7fb0", [TERM_SLOWER] = "#9dbfdc", [TERM_IMBALANCE] = "#e0a83c",
    [TERM_GATHER] = "#c8553d",  [TERM_REDUCE] = "#8a3b6b", [TERM_OTHER] = "#9aa3ab"};

/* A panel's plotting area, in the picture's units. */
typedef struct panel {
    double left, top, width, height;
} panel;

static const panel lines = {70, 80, 330, 300}, bars = {490, 80, 330, 300};

static void text(FILE *out, double x, double y, const char *anchor, const char *class, const char *content) {
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" class=\"%s\">%s</text>\n", x, y, anchor, class,
            content);
}

static void line(FILE *out, const char *class, double x1, double y1, double x2, double y2) {
    fprintf(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n", x1, y1, x2, y2, class);
}

static void escaped(FILE *out, const char *of) {
    for (; *of != '\0'; of++)
        if (*of == '<' || *of == '&')
            fputs(*of == '<' ? "&lt;" : "&amp;", out);
        else
            fputc(*of, out);
}

/* ---- speed-up, both axes logarithmic, so that the ideal is a straight line ---- */

/* Doublings that the axes span; the lower end leaves room for efficiencies below a half. */
static double doublings(const scaling *s) {
    return fmax(1, log2((double)s->points[s->count - 1].ranks / s->points[0].ranks));
}

static double column_of(const scaling *s, const scaling_point *p) {
    const double place = log2((double)p->ranks / s->points[0].ranks) / doublings(s);
    return lines.left + 25 + place * (lines.width - 50);
}

static double row_of(const scaling *s, double speed_up) {
    const double lowest = -0.5, place = (log2(speed_up) - lowest) / (doublings(s) - lowest + 0.2);
    return lines.top + lines.height * (1 - fmin(1, fmax(0, place)));
}

static void draw_axes(const scaling *s, FILE *out) {
    char label[32];
    line(out, "axis", lines.left, lines.top, lines.left, lines.top + lines.height);
    line(out, "axis", lines.left, lines.top + lines.height, lines.left + lines.width, lines.top + lines.height);
    for (int i = 0; i < s->count; i++) {
        const scaling_point *p = &s->points[i];
        snprintf(label, sizeof label, "%d", p->ranks);
        text(out, column_of(s, p), lines.top + lines.height + 18, "middle", "label", label);
    }
    for (int k = 0; k <= (int)doublings(s); k++) {
        snprintf(label, sizeof label, "%.0f", exp2(k));
        line(out, "grid", lines.left, row_of(s, exp2(k)), lines.left + lines.width, row_of(s, exp2(k)));
        text(out, lines.left - 8, row_of(s, exp2(k)) + 4, "end", "label", label);
    }
    text(out, lines.left + lines.width / 2, lines.top + lines.height + 40, "middle", "label", "ranks");
    text(out, lines.left, lines.top - 14, "start", "heading", "Speed-up");
}

static void draw_speed_up(const scaling *s, FILE *out) {
    const scaling_point *last = &s->points[s->count - 1];
    const double base = s->points[0].ranks;
    draw_axes(s, out);
    line(out, "ideal", column_of(s, &s->points[0]), row_of(s, 1), column_of(s, last), row_of(s, last->ranks / base));
    fputs("<polyline class=\"measured\" points=\"", out);
    for (int i = 0; i < s->count; i++)
        fprintf(out, "%.1f,%.1f ", column_of(s, &s->points[i]), row_of(s, s->points[i].speed_up));
    fputs("\"/>\n", out);
    for (int i = 0; i < s->count; i++) {
        const scaling_point *p = &s->points[i];
        const double x = column_of(s, p), y = row_of(s, p->speed_up), ideal = p->ranks / base;
        char label[48];
        line(out, "spread", x, row_of(s, p->lowest * ideal), x, row_of(s, p->highest * ideal));
        fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4.5\" class=\"point\"/>\n", x, y);
        snprintf(label, sizeof label, "%.2f (%.0f %%)", p->speed_up, 100 * p->efficiency);
        if (i > 0) /* below the line, and inside the panel */
            text(out, x + 8, fmax(y, row_of(s, ideal) + 8) + 18, "end", "label", label);
    }
    text(out, lines.left + 14, lines.top + 12, "start", "label", "dashed: ideal; bar: the repeats' spread");
}

/* ---- the steps' terms, stacked ---- */

static double longest_step(const scaling *s) {
    double longest = 0;
    for (int i = 0; i < s->count; i++)
        longest = fmax(longest, s->points[i].median.seconds);
    return longest;
}

static void draw_bar(const scaling *s, int i, double scale, FILE *out) {
    const scaling_point *p = &s->points[i];
    const double slot = bars.width / s->count, width = fmin(60, 0.6 * slot), x = bars.left + (i + 0.5) * slot;
    const double floor = bars.top + bars.height;
    double y = floor;
    char label[32];
    /* Ranks that compute faster than the ideal take it off the first term. */
    for (int t = 0; t < TERM_COUNT; t++) {
        const double seconds = t == TERM_COMPUTE ? p->terms[t] + fmin(0, p->terms[TERM_SLOWER]) : fmax(0, p->terms[t]);
        y -= seconds * scale;
        fprintf(
            out,
            "<rect x=\"%.1f\" y=\"%.2f\" width=\"%.1f\" height=\"%.2f\" fill=\"%s\"><title>%s %.4g ms</title></rect>\n",
            x - width / 2, y, width, seconds * scale, colours[t], scaling_term_name((scaling_term)t),
            1e3 * p->terms[t]);
    }
    line(out, "ideal", x - width / 2 - 6, floor - p->ideal * scale, x + width / 2 + 6, floor - p->ideal * scale);
    snprintf(label, sizeof label, "%.4g", 1e3 * p->median.seconds);
    text(out, x, y - 6, "middle", "label", label);
    snprintf(label, sizeof label, "%d", p->ranks);
    text(out, x, floor + 18, "middle", "label", label);
}

static void draw_legend(FILE *out) {
    for (int t = 0; t < TERM_COUNT; t++) {
        const double x = lines.left + (t % 3) * 190, y = 452 + (t / 3) * 22;
        fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"13\" height=\"13\" fill=\"%s\"/>\n", x, y - 11, colours[t]);
        text(out, x + 20, y, "start", "label", scaling_term_name((scaling_term)t));
    }
    line(out, "ideal", lines.left + 3 * 190, 448, lines.left + 3 * 190 + 24, 448);
    text(out, lines.left + 3 * 190 + 32, 452, "start", "label", "ideal step");
}

static void draw_steps(const scaling *s, FILE *out) {
    const double scale = 0.9 * bars.height / longest_step(s);
    text(out, bars.left, bars.top - 14, "start", "heading", "A step, in milliseconds");
    line(out, "axis", bars.left, bars.top + bars.height, bars.left + bars.width, bars.top + bars.height);
    for (int i = 0; i < s->count; i++)
        draw_bar(s, i, scale, out);
    text(out, bars.left + bars.width / 2, bars.top + bars.height + 40, "middle", "label", "ranks");
    draw_legend(out);
}

void scaling_write_svg(const scaling *s, FILE *out) {
    fputs("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 860 500\" width=\"860\" height=\"500\">\n"
          "<style>text{font-family:sans-serif;fill:#25303b}.title{font-size:17px}.heading{font-size:14px}"
          ".label{font-size:12px;paint-order:stroke;stroke:#ffffff;stroke-width:3px}.axis{stroke:#25303b}.grid{stroke:#"
          "d9dde3}"
          ".ideal{stroke:#25303b;stroke-dasharray:5 4}.measured{stroke:#4c7fb0;stroke-width:2;fill:none}"
          ".spread{stroke:#4c7fb0;stroke-width:5;stroke-opacity:0.35}.point{fill:#4c7fb0}</style>\n"
          "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
          out);
    fprintf(out, "<text x=\"%.1f\" y=\"34\" class=\"title\">%s scaling of ", lines.left, s->weak ? "Weak" : "Strong");
    escaped(out, s->config);
    fputs("</text>\n", out);
    draw_speed_up(s, out);
    draw_steps(s, out);
    fputs("</svg>\n", out);
}
