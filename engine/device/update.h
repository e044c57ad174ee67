/* The end of a step: from sums of squares to the update, as a contract for every device's kernels.
 *
 * Every rank writes one row of c fp64 contributions: the squares of the granules that it owns, unit after unit, then
 * the sum of token losses of each of its micro-batches. An all-gather gives contributions[ranks, c]. step_result reads
 * them in one fixed order, so that every rank computes the same bits whatever the world size:
 *
 *   loss    = (sum over m = 0 .. passes * ranks - 1 of row[m mod ranks][loss_column + m / ranks]) * GRADIENT_SCALE
 *   squares = sum over units u, granules g of u, of row[g / per_rank(u)][column(u) + g mod per_rank(u)]
 *             (rows 0 .. group_size-1: later rows repeat them)
 *   norm    = sqrt(squares)
 *   clip    = clip > 0 ? min(1, clip / (norm + 1e-6)) : 1          (as torch.nn.utils.clip_grad_norm_)
 *   bad     = loss or norm is not finite
 *   bad_unit = first unit whose squares are not finite, else -1
 *   update_count += bad ? 0 : 1
 *
 * adamw, unless bad (then nothing changes), in fp32 with the scalars in fp64, t = update_count after the increment:
 *
 *   g = gradient * clip
 *   first  = beta1 * first  + (1 - beta1) * g
 *   second = beta2 * second + (1 - beta2) * g^2
 *   p = p * (1 - rate * weight_decay)  where the segment decays
 *   p = p - rate * (first / (1 - beta1^t)) / (sqrt(second / (1 - beta2^t)) + epsilon)    (as torch.optim.AdamW)
 *
 * Elements outside the segments are padding: never read, never written. */
#ifndef FSDP_ENGINE_DEVICE_UPDATE_H
#define FSDP_ENGINE_DEVICE_UPDATE_H

/* Indices into result[R], fp64. */
enum step_result_index {
    RESULT_LOSS,
    RESULT_NORM,     /* before clipping */
    RESULT_CLIP,     /* factor applied to the gradient */
    RESULT_BAD,      /* 1: loss or norm not finite, the update was skipped */
    RESULT_BAD_UNIT, /* first unit whose gradient is not finite; -1: none */
    RESULT_COUNT
};

#endif
