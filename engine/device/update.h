/* The end of a step: from sums of squares to the update, as a contract for every device's kernels.
 *
 * Every rank writes one row of c fp64 contributions: the squares of the granules that it owns, unit after unit, then
 * the sum of token losses of each of its micro-batches. An all-gather gives contributions[ranks, c]. step_result reads
 * them in one fixed order, so that every rank computes the same bits whatever the world size:
 *
 *   loss    = (sum over m = 0 .. passes * ranks - 1 of row[m mod ranks][loss_column + m / ranks]) * GRADIENT_SCALE
 *   squares = sum over units u, granules g of u, of row[g / per_rank(u)][column(u) + g mod per_rank(u)]
 *             (rows 0 .. group_size-1: later rows repeat them)
 *   scale   = loss_scale[LOSS_SCALE]; 1 without a loss scale: gradients come in multiplied by it
 *   norm    = sqrt(squares) / scale
 *   clip    = (clip > 0 ? min(1, clip / (norm + 1e-6)) : 1) / scale      (as torch.nn.utils.clip_grad_norm_)
 *   bad     = loss or norm is not finite
 *   bad_unit = first unit whose squares are not finite, else -1
 *   overflow = bad, but the loss is finite and the loss scale can still be halved: interval > 0 and scale > 1
 *   update_count += bad ? 0 : 1
 *
 * and then changes the loss scale for the next step, unless interval (attributes.loss_scale_interval) is 0:
 *
 *   overflow:  scale = max(1, scale / 2)
 *   good_steps = bad ? 0 : good_steps + 1
 *   good_steps == interval:  scale = 2 * scale, good_steps = 0
 *
 * An overflow is how dynamic scaling finds the largest scale that fits: the update is left out and nothing else
 * happens. Bad without overflow is for the user to know of (train.nonfinite): the loss itself, or gradients at a scale
 * that cannot or must not be halved. Every rank holds the same loss_scale, since every rank reads the same
 * contributions; the host learns of it with the result, one step later.
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
    RESULT_NORM,       /* before clipping, of the true gradient: without the loss scale */
    RESULT_CLIP,       /* factor applied to the gradient shards: clips, and takes the loss scale out */
    RESULT_BAD,        /* 1: loss or norm not finite, the update was skipped */
    RESULT_BAD_UNIT,   /* first unit whose gradient is not finite; -1: none */
    RESULT_OVERFLOW,   /* 1: bad, and an ordinary event of dynamic loss scaling */
    RESULT_LOSS_SCALE, /* that this step's gradients were multiplied by; 1 without */
    RESULT_COUNT
};

/* Indices into loss_scale[L], fp64, persistent; written before the first step. */
enum loss_scale_index {
    LOSS_SCALE,            /* what the loss gradient is multiplied by; a power of two where it is dynamic */
    LOSS_SCALE_GOOD_STEPS, /* in a row, since the scale last changed */
    LOSS_SCALE_COUNT
};

/* Dynamic scaling (Micikevicius et al., "Mixed precision training", 2018), with the constants of torch.amp. */
enum { LOSS_SCALE_FIRST = 1 << 16, LOSS_SCALE_INTERVAL = 2000 };

#endif
