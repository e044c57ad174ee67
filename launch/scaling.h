/* How a run scales over ranks: what its steps measured at each count, and where the time went that the ideal would not
 * have taken. Seconds are of a step.
 *
 * A run is described by its middle half: of the steps behind the first ones, those whose seconds lie between the
 * quartiles, averaged, so that hiccups of the machine leave no trace and terms still add up. A count is described by
 * the median of its runs.
 *
 * A step is taken apart on the rank that computed longest, since the others wait for it:
 *
 *   step = compute of the smallest count's step, in the ideal share     (ideal)
 *        + what ranks computed longer than that, on the mean            (memory bandwidth, clocks, smaller matrices)
 *        + what the slowest computed longer than the mean               (imbalance)
 *        + its waits for gathers, and for reductions, with moving parts (exposed gather, exposed reduce)
 *        + the rest                                                     (batches, the executor)
 *
 * The ideal is the smallest count's step: weak scaling, where the batch grows with the ranks, keeps its time; strong
 * scaling divides it. Efficiency is ideal over measured time. */
#ifndef FSDP_LAUNCH_SCALING_H
#define FSDP_LAUNCH_SCALING_H

#include "engine/error.h"

#include <stdint.h>
#include <stdio.h>

typedef enum scaling_term {
    TERM_COMPUTE,
    TERM_SLOWER,
    TERM_IMBALANCE,
    TERM_GATHER,
    TERM_REDUCE,
    TERM_OTHER,
    TERM_COUNT
} scaling_term;

typedef struct scaling_run {
    double seconds, tokens; /* of a step, all ranks */
    double compute;         /* mean over ranks */
    double slowest_compute, gather, reduce, other;
    int slowest;          /* the rank that was it most often */
    double slowest_share; /* of the steps */
} scaling_run;

typedef struct scaling_point {
    int ranks;
    int64_t global_batch;
    scaling_run *runs; /* [repeats] */

    /* By scaling_compare. */
    scaling_run median;
    double terms[TERM_COUNT], lost[TERM_COUNT]; /* seconds; of the ideal's, what was lost by each */
    double ideal;                               /* seconds of the ideal step */
    double speed_up, efficiency;
    double lowest, highest; /* efficiency, a count's runs against those of the smallest in the same repeat */
} scaling_point;

typedef struct scaling {
    const char *config;
    bool weak;
    int repeats, steps, skipped; /* of each run: steps, and the first ones that do not count */
    scaling_point *points;       /* [count], growing ranks */
    int count;
} scaling;

/* Reads a run's metrics.jsonl. Steps up to `skipped` are left out. EXIT_INTERNAL when it does not hold what it should.
 */
bool scaling_read(const char *path, int skipped, scaling_run *run, error *e);

/* Fills in what points say together. */
void scaling_compare(scaling *s);

/* The sum of a point's terms over its measured step: 1 when nothing was missed. */
double scaling_closure(const scaling_point *p);

const char *scaling_term_name(scaling_term t);

void scaling_print(const scaling *s, FILE *out);
void scaling_write_csv(const scaling *s, FILE *out);
void scaling_write_json(const scaling *s, FILE *out);
void scaling_write_svg(const scaling *s, FILE *out);

#endif
