/* Placed step programs of small models, for tests of programs as data. */
#ifndef FSDP_TESTS_SUPPORT_SMALL_PROGRAMS_H
#define FSDP_TESTS_SUPPORT_SMALL_PROGRAMS_H

#include "engine/recompute.h"
#include "engine/step.h"
#include "models/model.h"
#include "support/matrix.h"

typedef struct small_program {
    model_shape shape;
    int ranks, group, prefetch;
    int64_t passes, micro_batch, sequence, unit_blocks;
    bool keep_gathered, reduce_last;
    recompute_policy recompute; /* memory: half of all levels */
    precision_settings precision;
    bool fused; /* for a device that executes all that engine/fuse merges; the CPU does not */
} small_program;

/* shape, ranks, shard group, prefetch, passes, micro-batch, sequence, blocks to a unit, keep gathered, reduce last,
 * recompute; in fp32, or with the precision that comes first */
#define SMALL_PROGRAM(...) ((small_program){__VA_ARGS__, .precision = {.storage = DTYPE_F32}})
#define SMALL_PROGRAM_IN(numbers, ...) ((small_program){__VA_ARGS__, .precision = numbers})
#define SMALL_PROGRAM_FUSED(numbers, ...) ((small_program){__VA_ARGS__, .precision = numbers, .fused = true})

/* Every strategy, several world sizes, accumulation, prefetch depths, recomputation, precisions; some fused. */
const small_program *small_programs(size_t *count);

/* The program of a run of the matrix. */
small_program small_program_of(const matrix_run *run);

/* The program of rank 0, placed, with waits; destroyed by the caller. */
step *small_program_build(const small_program *of);

/* Whether any operation reads the tensor or bytes of it. */
bool small_program_reads(const program *p, tensor_id t);

/* A tensor without views of at least the size of t, with bytes of its own, that is written before t's first write and
 * read after its last; NO_TENSOR: there is none, or t is a view, persistent or never read. */
tensor_id small_program_alive_beside(const program *p, tensor_id t);

/* Moves a tensor and all its views by so many bytes. */
void small_program_move(program *p, tensor_id t, int64_t bytes);

#endif
