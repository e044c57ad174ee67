/* A timeline of chosen steps, measured while they run, as events of the Chrome trace format (JSON), which Perfetto and
 * chrome://tracing draw.
 *
 * A rank is a process of the timeline, a stream a row (thread) of it:
 *
 *   compute, copy    an operation from its start to its end
 *   compute          "wait for ...", category exposed: the rank stood still until parts of other ranks had come, been
 *                    moved and summed; "move parts", likewise: it moved what had come for a collective under way
 *   gather, reduce   a collective from its issue, or the end of the one before it on its stream, to its completion
 *   step             the whole step
 *
 * Names are the operation's kind and its first output, of collectives kind and unit. Arguments: step, micro-batch,
 * phase, unit, index in the program, bytes (operation_bytes), flops (operation_flops), and the rates reached. An arrow
 * (flow event) leads from what an operation waited for to the operation.
 *
 * Measuring a step writes into memory that trace_create has allocated. Steps are numbered from 1. */
#ifndef FSDP_ENGINE_TRACE_H
#define FSDP_ENGINE_TRACE_H

#include "engine/run.h"

typedef struct trace trace;

/* Of steps first .. last of the program, which belongs to the caller and outlives the trace. */
trace *trace_create(const program *p, int64_t first, int64_t last);
void trace_destroy(trace *t);

/* Where run_step_timed puts the times of this step; NULL: the step is not traced. */
step_times *trace_step(trace *t, int64_t step);

/* Where the seconds of a step went: operations of the compute stream; waiting for gathers and moving their parts; the
 * same for reductions (what a step's end waits for among them); none of these. */
typedef struct step_shares {
    double compute, gather, reduce, idle;
} step_shares;
step_shares trace_shares(const trace *t, int64_t step);

/* Whose timeline it is. */
typedef struct trace_rank {
    int rank;
    const char *host;
    double origin; /* this rank's clock at the timeline's zero */
} trace_rank;

/* Writes the events of the steps first .. last, separated by commas and newlines, none behind the last. */
void trace_write(const trace *t, int64_t first, int64_t last, const trace_rank *of, FILE *to);

#endif
