/* Who owns what, and when it is whole: makes the step of one rank out of the program of one micro-batch.
 *
 * The micro-batches are unrolled. Before a unit's turn an all-gather makes its flat parameter whole, issued `prefetch`
 * turns ahead; parameters are views of it. Gradients are views of a flat gradient of the same layout; behind the last
 * operation that writes into it a reduction sums it over the ranks. A turn is a run of operations of one unit; a tied
 * root stays whole from the embedding to the head. Nothing is freed: a gathered tensor ends with its last reader, and
 * the next turn of its unit gathers anew.
 *
 *   shard group of one rank     parameters are views of the master weights, nothing is gathered
 *   reduce each micro-batch     reduce-scatter per pass, added up in the gradient shard
 *   reduce at the last          the flat gradient accumulates over passes; one all-reduce
 */
#ifndef FSDP_SHARD_SCHEDULE_H
#define FSDP_SHARD_SCHEDULE_H

#include "engine/parameter.h"
#include "engine/step.h"
#include "shard/flat.h"

typedef struct schedule_settings {
    int ranks;       /* world size */
    int64_t passes;  /* micro-batches of this rank in a step */
    int prefetch;    /* turns that a gather is issued ahead; 0: right before its own */
    bool optimizer;  /* optimizer state lies among the persistent tensors: training, and validation beside it */
} schedule_settings;

/* `micro` is the program of one micro-batch, with (training) or without (validation) its backward. */
step *shard_schedule(const program *micro, const parameter_list *list, const flat_layout *layout,
                     const schedule_settings *settings);

#endif
