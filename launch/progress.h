/* What a run says while it trains: a line per step, or on a terminal one line that is drawn again. Rank 0 prints. */
#ifndef FSDP_LAUNCH_PROGRESS_H
#define FSDP_LAUNCH_PROGRESS_H

#include "launch/metrics.h"

#include <stdio.h>

typedef struct progress progress;

/* first_step: the step (from 1) that this start begins with; log_every: steps between lines on a plain stream. */
progress *progress_create(FILE *out, int64_t first_step, int64_t steps, int64_t log_every);

/* Leaves a terminal's cursor on a line of its own. */
void progress_destroy(progress *p);

void progress_step(progress *p, const step_report *report);

/* A line of its own between the steps ("validation loss 1.2345"). */
void progress_note(progress *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same on standard error, as "fsdp_train: warning: ...". */
void progress_warning(progress *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The texts themselves; seconds_left is negative when it is not known yet. Both return a string that the caller frees.
 *
 *   step 12/600  loss 3.4127  norm 1.23  rate 3.0e-04  12,345 tokens/s  time left 1:23
 *   [====>               ] 12/600  loss 3.4127  12,345 tokens/s  MFU 41.2%  time left 1:23
 *
 * The second fits into `columns`: it gives up the bar first, then the last fields. */
char *progress_line(const step_report *report, int64_t steps, double seconds_left);
char *progress_bar(const step_report *report, int64_t steps, double seconds_left, int columns);

#endif
