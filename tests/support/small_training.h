/* Trains a small model over loopback ranks (threads of this process), for tests that compare world sizes, strategies
 * and schedules. */
#ifndef FSDP_TESTS_SUPPORT_SMALL_TRAINING_H
#define FSDP_TESTS_SUPPORT_SMALL_TRAINING_H

#include "engine/recompute.h"
#include "models/model.h"

enum { SMALL_TRAINING_STEPS = 4 };

typedef struct small_training {
    model_shape shape;
    int ranks, group; /* group: ranks in a shard group */
    int threads;      /* of each rank */
    int prefetch;
    bool keep_gathered, reduce_each, reproducible;
    recompute_policy recompute;
    int compute, communicate; /* config_compute, config_communicate */
    double first_loss_scale;  /* of dynamic scaling; 0: as usual */
    uint64_t order_seed;      /* as in engine/run.h */
    const char *trace_folder; /* where the timeline of steps 2 and 3 is written; NULL: none is */
    int64_t memory;           /* budget of recompute = memory */
    int64_t unit_blocks, global_batch, micro_batch, sequence;
} small_training;

typedef struct small_result {
    double losses[SMALL_TRAINING_STEPS], norms[SMALL_TRAINING_STEPS];
    double loss_scales[SMALL_TRAINING_STEPS]; /* that each step used; 1: none */
    bool updated[SMALL_TRAINING_STEPS];
    double validation; /* loss of one batch, after the last step */
    float *weights;    /* [elements], all parameters one after the other, after the last step; freed by the caller */
    int64_t elements;
    int64_t arena_bytes; /* of rank 0 */
} small_result;

/* A model with grouped heads, odd widths and an odd vocabulary. */
model_shape small_shape(model_family family, bool tied);

small_result small_training_run(const small_training *t);

/* Norm of the difference of two runs' weights over the norm of the weights. GPT-2's key biases are left out: softmax
 * does not see them, so their gradient is rounding, which AdamW turns into full steps in any direction. */
double small_training_distance(const small_training *t, const small_result *a, const small_result *b);

#endif
