/* What fsdp_scaling prints, and its CSV and JSON files. */
#include "launch/scaling.h"

#include "engine/checked.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

static double rate_of(const scaling_point *p) {
    return p->median.tokens / p->median.seconds;
}

static double imbalance_of_point(const scaling_point *p) {
    return p->median.slowest_compute / p->median.compute;
}

/* ---- for people ---- */

static void print_rates(const scaling *s, FILE *out) {
    fprintf(out, "%6s  %12s  %10s  %9s  %s\n", "ranks", "global batch", "tokens/s", "speed-up",
            "efficiency (lowest - highest of the repeats)");
    for (int i = 0; i < s->count; i++) {
        const scaling_point *p = &s->points[i];
        fprintf(out, "%6d  %12lld  %10.0f  %9.2f  %.3f (%.3f - %.3f)\n", p->ranks, (long long)p->global_batch,
                rate_of(p), p->speed_up, p->efficiency, p->lowest, p->highest);
    }
}

static void print_terms(const scaling *s, FILE *out) {
    fprintf(out, "\nWhere a step's milliseconds went, on the rank that computed longest:\n%6s  %10s", "ranks", "step");
    for (int t = 0; t < TERM_COUNT; t++)
        fprintf(out, "  %14s", scaling_term_name((scaling_term)t));
    fprintf(out, "  %8s\n", "sum/step");
    for (int i = 0; i < s->count; i++) {
        const scaling_point *p = &s->points[i];
        fprintf(out, "%6d  %10.3f", p->ranks, 1e3 * p->median.seconds);
        for (int t = 0; t < TERM_COUNT; t++)
            fprintf(out, "  %14.3f", 1e3 * p->terms[t]);
        fprintf(out, "  %8.4f\n", scaling_closure(p));
    }
}

static void print_losses(const scaling *s, FILE *out) {
    fputc('\n', out);
    for (int i = 1; i < s->count; i++) {
        const scaling_point *p = &s->points[i];
        fprintf(out, "%d ranks lose %.1f %% of their time", p->ranks, 100 * (1 - p->efficiency));
        for (int t = TERM_SLOWER; t < TERM_COUNT; t++)
            fprintf(out, "%s %s %.1f", t == TERM_SLOWER ? ":" : ",", scaling_term_name((scaling_term)t),
                    100 * p->lost[t] / p->median.seconds);
        fprintf(out, "; imbalance %.3f, rank %d the slowest in %.0f %% of the steps\n", imbalance_of_point(p),
                p->median.slowest, 100 * p->median.slowest_share);
    }
}

void scaling_print(const scaling *s, FILE *out) {
    fprintf(out, "\n%s scaling of %s: %d steps a run, the first %d not counted; the median of %d run%s\n\n",
            s->weak ? "Weak" : "Strong", s->config, s->steps, s->skipped, s->repeats, s->repeats == 1 ? "" : "s");
    print_rates(s, out);
    print_terms(s, out);
    if (s->count > 1)
        print_losses(s, out);
    fputs(
        "\nslower compute: ranks compute longer than the ideal, on the mean: memory bandwidth, clocks, other work on\n"
        "the cores, smaller matrices. imbalance: the slowest rank beyond the mean. other: batches, notices, the "
        "executor.\n",
        out);
}

/* ---- for programs ---- */

static void write_name(scaling_term t, FILE *out) {
    for (const char *c = scaling_term_name(t); *c != '\0'; c++)
        fputc(*c == ' ' ? '_' : *c, out);
}

void scaling_write_csv(const scaling *s, FILE *out) {
    fputs("ranks,global_batch,tokens_per_second,speed_up,efficiency,efficiency_lowest,efficiency_highest,seconds", out);
    for (int t = 0; t < TERM_COUNT; t++) {
        fputc(',', out);
        write_name((scaling_term)t, out);
    }
    fputs(",slowest_over_mean,slowest_rank\n", out);
    for (int i = 0; i < s->count; i++) {
        const scaling_point *p = &s->points[i];
        fprintf(out, "%d,%lld,%.17g,%.17g,%.17g,%.17g,%.17g,%.17g", p->ranks, (long long)p->global_batch, rate_of(p),
                p->speed_up, p->efficiency, p->lowest, p->highest, p->median.seconds);
        for (int t = 0; t < TERM_COUNT; t++)
            fprintf(out, ",%.17g", p->terms[t]);
        fprintf(out, ",%.17g,%d\n", imbalance_of_point(p), p->median.slowest);
    }
}

static json_t *terms_json(const double *terms) {
    json_t *made = json_object();
    for (int t = 0; t < TERM_COUNT; t++) {
        char *name = memory_copy_string(scaling_term_name((scaling_term)t));
        for (char *c = name; *c != '\0'; c++)
            *c = *c == ' ' ? '_' : *c;
        json_object_set_new(made, name, json_real(terms[t]));
        free(name);
    }
    return made;
}

static json_t *point_json(const scaling *s, const scaling_point *p) {
    json_t *runs = json_array();
    for (int r = 0; r < s->repeats; r++)
        json_array_append_new(runs, json_real(p->runs[r].seconds));
    return json_pack("{s:i, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:o, s:f, s:i, s:f, s:o}", "ranks", p->ranks,
                     "global_batch", (json_int_t)p->global_batch, "tokens_per_second", rate_of(p), "speed_up",
                     p->speed_up, "efficiency", p->efficiency, "efficiency_lowest", p->lowest, "efficiency_highest",
                     p->highest, "seconds", p->median.seconds, "ideal_seconds", p->ideal, "terms", terms_json(p->terms),
                     "lost", terms_json(p->lost), "slowest_over_mean", imbalance_of_point(p), "slowest_rank",
                     p->median.slowest, "slowest_share", p->median.slowest_share, "runs_seconds", runs);
}

void scaling_write_json(const scaling *s, FILE *out) {
    json_t *points = json_array();
    for (int i = 0; i < s->count; i++)
        json_array_append_new(points, point_json(s, &s->points[i]));
    json_t *whole =
        json_pack("{s:s, s:s, s:i, s:i, s:i, s:o}", "config", s->config, "mode", s->weak ? "weak" : "strong", "repeats",
                  s->repeats, "steps", s->steps, "skipped", s->skipped, "points", points);
    json_dumpf(whole, out, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    fputc('\n', out);
    json_decref(whole);
}
