/* A whole step, and the tensors at which its parts meet: shard/ makes them, optim/ and launch/ use them. */
#ifndef FSDP_ENGINE_STEP_H
#define FSDP_ENGINE_STEP_H

#include "engine/program.h"

typedef struct step {
    program *program;
    int32_t units;
    int64_t passes;                          /* micro-batches of this rank */
    int ranks;                               /* world size */
    tensor_id *master;                       /* [units] */
    tensor_id *first_moment, *second_moment; /* [units]; NO_TENSOR without an optimizer */
    tensor_id *gradient;     /* [units]: reduced gradient of the shard; NO_TENSOR without an optimizer */
    tensor_id update_count;  /* fp64 [1], persistent; NO_TENSOR without an optimizer */
    tensor_id loss_scale;    /* fp64 [LOSS_SCALE_COUNT], persistent; NO_TENSOR: gradients are not scaled */
    tensor_id scalars;       /* fp64 [SCALAR_COUNT] */
    tensor_id contributions; /* fp64 [c]: squares of granules, then a loss sum per pass */
    int64_t loss_column;     /* of the first loss sum */
} step;

void step_destroy(step *s); /* the program too */

#endif
