/* How flat gradients become the gradient of a shard: over the ranks of a group, over the groups, over micro-batches.
 * Private to shard/.
 *
 * A value goes through stages, each of which reads what the one before it has made:
 *
 *   1  reduce-scatter in the shard group                          groups of more than one rank
 *   2  all-reduce over the groups that hold the same shard        more than one group; once a step, or each micro-batch
 *                                                                 if reproducible
 *   3  a cast back to fp32                                        if 2 was not in fp32
 *   4  addition to the sums of earlier micro-batches              if reproducible (else stage 1 accumulates)
 *
 * A value that is to travel in bf16 and is not stored so is cast before stages 1 and 2; sums are fp32 inside a
 * collective, and so is what a reduce-scatter leaves.
 *
 * A unit's next stage comes one unit later, when the one before it is through, so that none is waited for at once.
 *
 * Reproducible sums: micro-batch m of a step belongs to rank m mod W in pass floor(m / W). With q the odd part of W,
 * runs of q micro-batches are summed left to right, and these sums pairwise, as a binary tree over m: across ranks
 * inside the collectives (attributes.odd), across passes as a binary counter of at most log2(passes) + 1 sums. World
 * sizes with the same odd part build the same tree, hence the same bits. */
#ifndef FSDP_SHARD_REDUCER_H
#define FSDP_SHARD_REDUCER_H

#include "engine/step.h"
#include "shard/flat.h"

typedef struct reducer reducer;

/* Appends to s->program and writes s->gradient; both arguments outlive the reducer. wire: type of gradients between
 * ranks, fp32 if reproducible. */
reducer *reducer_create(step *s, const flat_layout *layout, bool reproducible, dtype wire);

/* The unit's flat gradient is complete for a pass or, accumulated, for all passes up to the last. */
void reducer_add(reducer *r, int32_t unit, int64_t pass, tensor_id flat);

/* Ends what is under way; the reducer is freed. */
void reducer_finish(reducer *r);

#endif
