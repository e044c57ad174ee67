/* sum, granule_norm, step_result: what a step reports, in double. */
#include "engine/device/cpu/kernels/exports.h"
#include "engine/device/cpu/kernels/tiles.h"
#include "engine/device/cpu/kernels/vector_math.h"
#include "engine/device/update.h"

/* Token losses of one micro-batch are few: one tile. */
static void sum_tile(void *context, int64_t tile, int thread) {
    (void)tile;
    (void)thread;
    const launch *l = context;
    const float *x = l->in[0].data;
    int64_t count = operand_count(&l->in[0]);
    vector_double total = {0};
    for (int64_t i = 0; i < count; i += DOUBLE_LANES)
        total += vector_load_double(x + i, count - i);
    *(double *)l->out[0].data = vector_double_sum_lanes(total);
}

void KERNEL(sum_run)(pool *p, const launch *l) {
    pool_run(p, 1, sum_tile, (void *)l);
}

static double sum_of_squares(const float *x, int64_t count) {
    vector_double even = {0}, odd = {0}; /* two chains, so that additions overlap */
    int64_t i = 0;
    for (; i + 2 * DOUBLE_LANES <= count; i += 2 * DOUBLE_LANES) {
        vector_double a = vector_load_double(x + i, DOUBLE_LANES);
        vector_double b = vector_load_double(x + i + DOUBLE_LANES, DOUBLE_LANES);
        even += a * a;
        odd += b * b;
    }
    for (; i < count; i += DOUBLE_LANES) {
        vector_double a = vector_load_double(x + i, count - i);
        even += a * a;
    }
    return vector_double_sum_lanes(even + odd);
}

static void granule_norm_tile(void *context, int64_t tile, int thread) {
    (void)thread;
    const launch *l = context;
    const attributes *a = &l->attributes;
    const float *gradient = l->in[0].data;
    tile_range granule = tile_range_of(tile, a->granule, operand_count(&l->in[0]));
    double squares = 0;
    for (int64_t k = 0; k < a->segment_count; k++) {
        const segment *s = &a->segments[k];
        int64_t begin = maximum(s->offset, granule.begin), end = minimum(s->offset + s->count, granule.end);
        if (begin < end)
            squares += sum_of_squares(gradient + begin, end - begin);
    }
    ((double *)l->out[0].data)[tile] = squares;
}

void KERNEL(granule_norm_run)(pool *p, const launch *l) {
    pool_run(p, operand_count(&l->out[0]), granule_norm_tile, (void *)l);
}

static double sum_of_losses(const attributes *a, const double *contributions, int64_t ranks, int64_t width) {
    double total = 0;
    for (int64_t pass = 0; pass < a->passes; pass++)
        for (int64_t rank = 0; rank < ranks; rank++)
            total += contributions[rank * width + a->loss_column + pass];
    return total;
}

/* The loss scale that the next step will use. */
static void adjust_loss_scale(const attributes *a, bool bad, bool overflow, double *loss_scale) {
    if (a->loss_scale_interval == 0)
        return;
    double *scale = &loss_scale[LOSS_SCALE], *good_steps = &loss_scale[LOSS_SCALE_GOOD_STEPS];
    if (overflow)
        *scale = fmax(1, *scale / 2);
    *good_steps = bad ? 0 : *good_steps + 1;
    if (*good_steps >= (double)a->loss_scale_interval) {
        *scale *= 2;
        *good_steps = 0;
    }
}

/* Sum over all units, and the first of them that is not finite (-1: none). */
static double sum_of_units(const attributes *a, const double *contributions, int64_t width, int64_t *bad_unit) {
    double squares = 0;
    *bad_unit = -1;
    for (int64_t u = 0; u < a->column_count; u++) {
        const granule_columns *unit = &a->columns[u];
        for (int64_t g = 0; g < unit->granules; g++) {
            double square = contributions[g / unit->per_rank * width + unit->column + g % unit->per_rank];
            squares += square;
            if (!isfinite(square) && *bad_unit < 0)
                *bad_unit = u;
        }
    }
    return squares;
}

static void step_result_tile(void *context, int64_t tile, int thread) {
    (void)tile;
    (void)thread;
    const launch *l = context;
    const attributes *a = &l->attributes;
    const double *contributions = l->in[0].data, *scalars = l->in[1].data;
    double *result = l->out[0].data, *update_count = l->out[1].data, *loss_scale = l->out[2].data;
    int64_t ranks = l->in[0].shape[0], width = l->in[0].shape[1], bad_unit;
    double loss = sum_of_losses(a, contributions, ranks, width) * scalars[SCALAR_GRADIENT_SCALE];
    double scale = loss_scale != NULL ? loss_scale[LOSS_SCALE] : 1;
    double norm = sqrt(sum_of_units(a, contributions, width, &bad_unit)) / scale;
    bool bad = !isfinite(loss) || !isfinite(norm);
    bool overflow = bad && isfinite(loss) && a->loss_scale_interval > 0 && scale > 1;
    result[RESULT_LOSS] = loss;
    result[RESULT_NORM] = norm;
    result[RESULT_CLIP] = (a->clip > 0 ? fmin(1, a->clip / (norm + 1e-6)) : 1) / scale;
    result[RESULT_BAD] = bad;
    result[RESULT_BAD_UNIT] = (double)bad_unit;
    result[RESULT_OVERFLOW] = overflow;
    result[RESULT_LOSS_SCALE] = scale;
    *update_count += bad ? 0 : 1;
    adjust_loss_scale(a, bad, overflow, loss_scale);
}

void KERNEL(step_result_run)(pool *p, const launch *l) {
    pool_run(p, 1, step_result_tile, (void *)l);
}
