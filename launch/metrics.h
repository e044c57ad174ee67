/* What a run measured, as JSON lines in folder/metrics.jsonl: one object a line, appended, flushed, numbers with 17
 * significant digits. What is not finite or not known is null. Rank 0 writes.
 *
 *   {"event":"start", ...}       once per start; resumed runs append
 *   {"event":"step", ...}        a step, numbered from 1
 *   {"event":"validation", ...}  a validation loss
 *   {"event":"resume", ...}      where this start goes on, after its start event
 *   {"event":"checkpoint_started", ...}  one of this step is being written
 *   {"event":"checkpoint", ...}  it is complete: its step, the seconds that it took, and stall, those of them in which
 *                               training stood still
 *   {"event":"end", ...}         how it ended
 *
 * Lines of steps that a resumed run does again are moved to folder/metrics.superseded.jsonl. */
#ifndef FSDP_LAUNCH_METRICS_H
#define FSDP_LAUNCH_METRICS_H

#include "engine/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* A step, for metrics and for the terminal. */
typedef struct step_report {
    int64_t step;         /* from 1 */
    double loss;          /* mean over the global batch, before the update */
    double gradient_norm; /* before clipping */
    double learning_rate;
    double loss_scale; /* that its gradients were multiplied by; 0: none, which is left out */
    bool overflow;     /* gradients were too large for it: no update, and half of it from now on */
    int64_t tokens;    /* trained on since the run's first step */
    double seconds;    /* the whole step without validation and saving */
    /* Of them, what a rank waited for others and moved their bytes; the largest over ranks; NAN: not measured. */
    double exposed;
    /* Where the seconds went on the rank that computed longest, for which the others wait; NAN: not measured. Its step
     * is compute * imbalance + exposed_gather + exposed_reduce + idle. */
    int slowest;
    double compute;   /* mean over ranks */
    double imbalance; /* the slowest's compute over the mean */
    double exposed_gather, exposed_reduce;
    double idle;              /* batches, telling each other signals and figures, what the executor itself takes */
    double tokens_per_second; /* all ranks */
    double tflops;            /* per rank */
    double mfu;               /* per rank, 0 .. 1; NAN: the device's peak is not known */
    int64_t memory;           /* resident or device bytes, the largest over ranks */
} step_report;

typedef struct metrics metrics;

/* For a run that goes on behind `step`, before metrics_open: moves the lines of later steps, and what is no JSON, to
 * folder/metrics.superseded.jsonl, behind a line {"event":"superseded","after":step,"lines":count}. metrics.jsonl is
 * replaced as a whole or not at all. EXIT_USAGE. */
bool metrics_supersede(const char *folder, int64_t step, error *e);

/* Makes the folder with its parents and opens folder/metrics.jsonl for appending. A folder that cannot be made or
 * written is EXIT_USAGE, with path and reason. */
bool metrics_open(const char *folder, metrics **opened, error *e);
void metrics_close(metrics *m);

/* The functions below return false when the line could not be written (a full disk): EXIT_USAGE, this rank's own. */

/* `fields`: an object with the resolved config, ranks, device, parameters, planned memory; its reference is taken. */
bool metrics_start(metrics *m, json_t *fields, error *e);
bool metrics_step(metrics *m, const step_report *report, error *e);
bool metrics_validation(metrics *m, int64_t step, double loss, error *e);

bool metrics_checkpoint_started(metrics *m, int64_t step, error *e);
bool metrics_checkpoint(metrics *m, int64_t step, double seconds, double stall, error *e);

/* `fields`: an object with step, from, ranks (of the saver) and changes; its reference is taken. */
bool metrics_resume(metrics *m, json_t *fields, error *e);

typedef enum end_reason { END_FINISHED, END_SIGNAL, END_ERROR } end_reason;

/* step: the last one done; seconds: since the start; message: of an error, else NULL. */
bool metrics_end(metrics *m, end_reason reason, int64_t step, double seconds, const char *message, error *e);

#endif
