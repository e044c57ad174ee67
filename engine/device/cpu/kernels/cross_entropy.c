/* cross_entropy: one pass over a row of logits from memory takes maximum, sum and exponentials; a second one, from the
 * cache, scales these to the gradient. */
#include "engine/device/cpu/kernels/exports.h"
#include "engine/device/cpu/kernels/storage.h"
#include "engine/device/cpu/kernels/tiles.h"
#include "engine/device/update.h"

#include <float.h>

/* A row is cut into at most BLOCKS blocks of at least BLOCK logits, each short enough for the first-level cache up to
 * a vocabulary of half a million: its maximum is taken before its exponentials. */
enum { BLOCKS = 64, BLOCK = 512 };

static int64_t block_length(int64_t vocabulary) {
    return maximum(BLOCK, round_up(divide_up(vocabulary, BLOCKS), LANES));
}

static float block_max(const stored *logits, int64_t count) {
    vector largest = vector_set(-INFINITY);
    for (int64_t i = 0; i < count; i += LANES)
        largest = vector_max(largest, stored_load_up_to(logits + i, count - i, -INFINITY));
    return vector_max_lanes(largest);
}

/* Sum of exp(logit - largest), which are kept in `to` unless that is NULL. */
static float block_exp(const stored *logits, float largest, int64_t count, float *to) {
    vector total = {0};
    for (int64_t i = 0; i < count; i += LANES) {
        vector e = vector_exp(stored_load_up_to(logits + i, count - i, -INFINITY) - largest);
        total += e;
        if (to != NULL)
            vector_store_up_to(to + i, count - i, e);
    }
    return vector_sum_lanes(total);
}

static void block_scale(const float *values, float factor, int64_t count, stored *to) {
    for (int64_t i = 0; i < count; i += LANES)
        stored_store_up_to(to + i, count - i, vector_load_up_to(values + i, count - i, 0) * factor);
}

/* A row of logits, summed: logsumexp = largest + log(total). The exponentials of block b were taken of logit -
 * base[b], the largest logit so far. */
typedef struct row_sum {
    float largest;
    double total;
    float base[BLOCKS];
} row_sum;

/* exponentials: NULL, or where they go; possibly the bytes of the logits. */
static void row_exp(const stored *logits, int64_t vocabulary, row_sum *sum, float *exponentials) {
    sum->largest = -FLT_MAX; /* finite, so that a block of logits of -infinity adds 0 */
    sum->total = 0;
    int64_t length = block_length(vocabulary);
    for (int64_t v = 0, b = 0; v < vocabulary; v += length, b++) {
        int64_t count = minimum(length, vocabulary - v);
        float largest = block_max(logits + v, count);
        if (largest > sum->largest) {
            sum->total *= exp((double)sum->largest - (double)largest);
            sum->largest = largest;
        }
        sum->base[b] = sum->largest;
        float *to = exponentials != NULL ? exponentials + v : NULL;
        sum->total += (double)block_exp(logits + v, sum->largest, count, to);
    }
}

/* Exponentials to gradient: softmax times scale; the target is corrected afterwards. */
static void row_scale(const row_sum *sum, double scale, int64_t vocabulary, const float *exponentials,
                      stored *dlogits) {
    int64_t length = block_length(vocabulary);
    for (int64_t v = 0, b = 0; v < vocabulary; v += length, b++) {
        double rebase = exp((double)sum->base[b] - (double)sum->largest);
        block_scale(exponentials + v, (float)(rebase * scale / sum->total), minimum(length, vocabulary - v),
                    dlogits + v);
    }
}

/* What a token's loss gradient starts with. */
static double gradient_scale(const launch *l) {
    const double *scalars = l->in[2].data, *loss_scale = l->in[3].data;
    return scalars[SCALAR_GRADIENT_SCALE] * (loss_scale != NULL ? loss_scale[LOSS_SCALE] : 1);
}

static void cross_entropy_row(const launch *l, int64_t row, int thread) {
    int64_t vocabulary = l->in[0].shape[1];
    const stored *logits = (const stored *)l->in[0].data + row * vocabulary;
    float *loss = l->out[0].data;
    stored *dlogits = l->out[1].data;
    int32_t target = ((const int32_t *)l->in[1].data)[row];
    if (dlogits != NULL)
        dlogits += row * vocabulary;
    if (target < 0) {
        loss[row] = 0;
        if (dlogits != NULL)
            memset(dlogits, 0, (size_t)vocabulary * sizeof *dlogits);
        return;
    }
    double target_logit = (double)stored_get(logits + target); /* before the logits are overwritten */
    row_sum sum;
    /* Exponentials lie where the gradient goes, but where that would round them in a row of workspace. */
    float *exponentials = (float *)dlogits;
    if (dlogits != NULL && STORED_ROUNDS)
        exponentials = (float *)l->workspace + thread * vocabulary;
    row_exp(logits, vocabulary, &sum, exponentials);
    double below = (double)sum.largest - target_logit;
    loss[row] = (float)(below + log(sum.total));
    if (dlogits == NULL)
        return;
    double scale = gradient_scale(l);
    row_scale(&sum, scale, vocabulary, exponentials, dlogits);
    stored_set(dlogits + target, (float)((exp(-below) / sum.total - 1) * scale));
}

static void cross_entropy_tile(void *context, int64_t tile, int thread) {
    const launch *l = context;
    tile_range range = tile_range_of(tile, tile_rows(l->in[0].shape[1]), l->in[0].shape[0]);
    for (int64_t row = range.begin; row < range.end; row++)
        cross_entropy_row(l, row, thread);
}

size_t STORED(cross_entropy_workspace)(const launch *l, int threads) {
    bool needed = STORED_ROUNDS && l->out[1].data != NULL;
    return needed ? (size_t)must_multiply(threads, l->in[0].shape[1] * (int64_t)sizeof(float)) : 0;
}

void STORED(cross_entropy_run)(pool *p, const launch *l) {
    tiles_run(p, l->in[0].shape[0], tile_rows(l->in[0].shape[1]), cross_entropy_tile, l);
}
