/* Who owns what, and when it is whole: makes the step of one rank out of the program of one micro-batch.
 *
<<<<<<< HEAD
 * The micro-batches are unrolled, a pass for each. A turn is a run of operations of one unit in a pass. Before it an
 * all-gather makes the unit's flat parameter whole, issued `prefetch` turns ahead; parameters are views of it.
 * Gradients are views of a flat gradient of the same layout; behind the last operation that writes into it it is summed
 * over the ranks (shard/reducer.h). Nothing is freed: a gathered tensor ends with its last reader, and the next turn of
 * its unit gathers anew, except that a tied root stays whole from the embedding to the head. Where parameters are
 * stored in 16 bits a cast of the fp32 master comes before each gather; in a shard group of one the cast takes its
 * place.
=======
 * The micro-batches are unrolled, a pass for each. Before a turn (engine/turn.h) an all-gather makes the unit's flat
 * parameter whole, issued `prefetch` turns ahead; parameters are views of it. Gradients are views of a flat gradient of
 * the same layout; behind the last operation that writes into it it is summed over the ranks (shard/reducer.h). Nothing
 * is freed: a gathered tensor ends with its last reader, and the next turn of its unit gathers anew, except that a tied
 * root stays whole from the embedding to the head.
>>>>>>> f122cc3 (engine/turn: one home for turns; the schedule unrolls them)
 *
 * A strategy is three settings:
 *                 shard group   parameters kept gathered   gradients reduced
 *   full          all ranks     no                         each micro-batch      ZeRO-3
 *   gradients     all ranks     yes                        each micro-batch      ZeRO-2
 *   optimizer     all ranks     yes                        at the last           ZeRO-1
 *   none          one rank      (they are the master)      at the last           data parallel
 *   hybrid        some ranks    as one likes: the shard groups hold the same, and sum their
 *                               gradients by an all-reduce at the last
 */
#ifndef FSDP_SHARD_SCHEDULE_H
#define FSDP_SHARD_SCHEDULE_H

#include "engine/parameter.h"
#include "engine/precision.h"
#include "engine/step.h"
#include "shard/flat.h"

typedef struct schedule_settings {
    int ranks;          /* world size */
    int64_t passes;     /* micro-batches of this rank in a step */
    int prefetch;       /* turns that a gather is issued ahead; 0: right before its own */
    bool keep_gathered; /* one gather of a unit a step, whole until its last use */
    bool reduce_each;   /* a reduction each micro-batch, else one at the last; a shard group of one has but the last */
    bool reproducible;  /* sums in an order that world sizes share (shard/reducer.h); implies reduce_each */
    bool optimizer;     /* optimizer state lies among the persistent tensors: training, and validation beside it */
    precision_settings precision; /* as micro was made with */
} schedule_settings;

/* `micro` is the program of one micro-batch, with (training) or without (validation) its backward. The caller destroys
 * the step; micro, list and layout need not outlive the call. */
step *shard_schedule(const program *micro, const parameter_list *list, const flat_layout *layout,
                     const schedule_settings *settings);

#endif
