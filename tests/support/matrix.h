/* The matrix of choices that a run can make: strategies, families, ranks, recomputation, prefetch, accumulation,
 * reductions, units and storages, as a covering set of runs in which every possible pair of choices is met. */
#ifndef FSDP_TESTS_SUPPORT_MATRIX_H
#define FSDP_TESTS_SUPPORT_MATRIX_H

#include "engine/recompute.h"
#include "models/model.h"

typedef struct matrix_run {
    const char *strategy;
    model_family family;
    int ranks, group, prefetch;
    int64_t passes, unit_blocks;
    bool keep_gathered, reduce_each;
    recompute_policy recompute;
    dtype storage; /* of activations and gathered parameters */
} matrix_run;

/* *count of them, made at the first call. */
const matrix_run *matrix_runs(int *count);

#endif
