/* cross_entropy: one pass over a row of logits for maximum and sum, one for the gradient. */
#include "engine/device/cpu/kernels/exports.h"
#include "engine/device/cpu/kernels/tiles.h"
#include "engine/device/cpu/kernels/vector_math.h"

#include <float.h>

enum { BLOCK = 1024 }; /* logits whose maximum is taken before their exponentials: in the first-level cache */

static float block_max(const float *logits, int64_t count) {
    vector largest = vector_set(-INFINITY);
    for (int64_t i = 0; i < count; i += LANES)
        largest = vector_max(largest, vector_load_up_to(logits + i, count - i, -INFINITY));
    return vector_max_lanes(largest);
}

static float block_sum_exp(const float *logits, float largest, int64_t count) {
    vector total = {0};
    for (int64_t i = 0; i < count; i += LANES)
        total += vector_exp(vector_load_up_to(logits + i, count - i, -INFINITY) - largest);
    return vector_sum_lanes(total);
}

/* logsumexp = largest + log(total), where total is the sum of exp(logit - largest). */
typedef struct softmax_sum {
    float largest;
    double total;
} softmax_sum;

/* Reads memory once: what was summed so far is rescaled when a block brings a larger logit. */
static softmax_sum row_softmax_sum(const float *logits, int64_t vocabulary) {
    softmax_sum sum = {-FLT_MAX, 0}; /* finite, so that a block of logits of -infinity adds 0 */
    for (int64_t v = 0; v < vocabulary; v += BLOCK) {
        int64_t count = minimum(BLOCK, vocabulary - v);
        float largest = block_max(logits + v, count);
        if (largest > sum.largest) {
            sum.total *= exp((double)sum.largest - (double)largest);
            sum.largest = largest;
        }
        sum.total += (double)block_sum_exp(logits + v, sum.largest, count);
    }
    return sum;
}

/* dlogits = softmax * scale, possibly in the bytes of the logits; the target is corrected afterwards. */
static void row_gradient(const float *logits, softmax_sum sum, double scale, int64_t vocabulary, float *dlogits) {
    float factor = (float)(scale / sum.total);
    for (int64_t v = 0; v < vocabulary; v += LANES) {
        vector e = vector_exp(vector_load_up_to(logits + v, vocabulary - v, 0) - sum.largest);
        vector_store_up_to(dlogits + v, vocabulary - v, e * factor);
    }
}

static void cross_entropy_row(const launch *l, int64_t row) {
    int64_t vocabulary = l->in[0].shape[1];
    const float *logits = (const float *)l->in[0].data + row * vocabulary;
    float *loss = l->out[0].data, *dlogits = l->out[1].data;
    int32_t target = ((const int32_t *)l->in[1].data)[row];
    if (dlogits != NULL)
        dlogits += row * vocabulary;
    if (target < 0) {
        loss[row] = 0;
        if (dlogits != NULL)
            memset(dlogits, 0, (size_t)vocabulary * sizeof *dlogits);
        return;
    }
    softmax_sum sum = row_softmax_sum(logits, vocabulary);
    double difference = (double)sum.largest - (double)logits[target];
    loss[row] = (float)(difference + log(sum.total));
    if (dlogits == NULL)
        return;
    double scale = ((const double *)l->in[2].data)[SCALAR_GRADIENT_SCALE];
    double target_gradient = (exp(-difference) / sum.total - 1) * scale; /* before logits are overwritten */
    row_gradient(logits, sum, scale, vocabulary, dlogits);
    dlogits[target] = (float)target_gradient;
}

static void cross_entropy_tile(void *context, int64_t tile, int thread) {
    (void)thread;
    const launch *l = context;
    tile_range range = tile_range_of(tile, tile_rows(l->in[0].shape[1]), l->in[0].shape[0]);
    for (int64_t row = range.begin; row < range.end; row++)
        cross_entropy_row(l, row);
}

void KERNEL(cross_entropy_run)(pool *p, const launch *l) {
    tiles_run(p, l->in[0].shape[0], tile_rows(l->in[0].shape[1]), cross_entropy_tile, l);
}
