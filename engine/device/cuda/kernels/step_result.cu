/* step_result: result[R], update_count[1] and loss_scale[L] from contributions[ranks, c] and scalars[S], all fp64, in
 * the one order that update.h names, so that every rank computes the same bits: a block fetches values together, and
 * one thread adds them one after another. */
#include "engine/device/cuda/kernels.h"

#include "engine/device/update.h"

#include "grid.cuh"
#include "storage.cuh"

typedef struct contribution_table {
    const double *values;
    int64_t ranks, width;
} contribution_table;

typedef struct step_settings {
    const granule_columns *units; /* in device memory */
    int64_t unit_count;
    int64_t loss_column, passes;
    double clip;
    int64_t loss_scale_interval;
} step_settings;

/* Granule g of a unit. */
static __device__ double square_at(const contribution_table &t, const granule_columns &unit, int64_t g) {
    return t.values[g / unit.per_rank * t.width + unit.column + g % unit.per_rank];
}

/* Sum over all granules, and the first unit with one that is not finite (-1: none). */
typedef struct sum_of_units {
    double squares, bad_unit;
} sum_of_units;

/* The sum is thread 0's; fetched: shared memory for BLOCK values. */
static __device__ sum_of_units add_squares(const step_settings &a, const contribution_table &t, double *fetched) {
    sum_of_units sum = {0, -1};
    for (int64_t u = 0; u < a.unit_count; u++) {
        granule_columns unit = a.units[u];
        for (int64_t begin = 0; begin < unit.granules; begin += BLOCK) {
            int64_t g = begin + threadIdx.x;
            if (g < unit.granules)
                fetched[threadIdx.x] = square_at(t, unit, g);
            __syncthreads();
            for (int i = 0; threadIdx.x == 0 && i < min(unit.granules - begin, (int64_t)BLOCK); i++) {
                sum.squares += fetched[i];
                if (!isfinite(fetched[i]) && sum.bad_unit < 0)
                    sum.bad_unit = (double)u;
            }
            __syncthreads(); /* before the next are fetched */
        }
    }
    return sum;
}

/* Of all micro-batches; likewise. */
static __device__ double add_losses(const step_settings &a, const contribution_table &t, double *fetched) {
    int64_t losses = a.passes * t.ranks;
    double loss = 0;
    for (int64_t begin = 0; begin < losses; begin += BLOCK) {
        int64_t m = begin + threadIdx.x;
        if (m < losses)
            fetched[threadIdx.x] = t.values[m % t.ranks * t.width + a.loss_column + m / t.ranks];
        __syncthreads();
        for (int i = 0; threadIdx.x == 0 && i < min(losses - begin, (int64_t)BLOCK); i++)
            loss += fetched[i];
        __syncthreads(); /* before the next are fetched */
    }
    return loss;
}

/* The loss scale that the next step will use. */
static __device__ void adjust_loss_scale(int64_t interval, bool bad, bool overflow, double *loss_scale) {
    if (overflow)
        loss_scale[LOSS_SCALE] = fmax(1.0, loss_scale[LOSS_SCALE] / 2);
    double good_steps = bad ? 0 : loss_scale[LOSS_SCALE_GOOD_STEPS] + 1;
    if (good_steps >= (double)interval) {
        loss_scale[LOSS_SCALE] *= 2;
        good_steps = 0;
    }
    loss_scale[LOSS_SCALE_GOOD_STEPS] = good_steps;
}

static __device__ void write_result(const step_settings &a, double loss, const sum_of_units &sum, double *result,
                                    double *update_count, double *loss_scale) {
    double scale = loss_scale != NULL ? loss_scale[LOSS_SCALE] : 1, norm = sqrt(sum.squares) / scale;
    bool bad = !isfinite(loss) || !isfinite(norm);
    bool overflow = bad && isfinite(loss) && a.loss_scale_interval > 0 && scale > 1;
    result[RESULT_LOSS] = loss;
    result[RESULT_NORM] = norm;
    result[RESULT_CLIP] = (a.clip > 0 ? fmin(1.0, a.clip / (norm + 1e-6)) : 1) / scale;
    result[RESULT_BAD] = bad;
    result[RESULT_BAD_UNIT] = sum.bad_unit;
    result[RESULT_OVERFLOW] = overflow;
    result[RESULT_LOSS_SCALE] = scale;
    *update_count += bad ? 0 : 1;
    if (a.loss_scale_interval > 0)
        adjust_loss_scale(a.loss_scale_interval, bad, overflow, loss_scale);
}

static __global__ void step_result(step_settings a, contribution_table t, const double *scalars, double *result,
                                   double *update_count, double *loss_scale) {
    __shared__ double fetched[BLOCK];
    double loss = add_losses(a, t, fetched);
    sum_of_units sum = add_squares(a, t, fetched);
    if (threadIdx.x == 0)
        write_result(a, loss * scalars[SCALAR_GRADIENT_SCALE], sum, result, update_count, loss_scale);
}

static void queue(const launch *l, cudaStream_t stream) {
    const attributes *a = &l->attributes;
    contribution_table t = {data<const double>(&l->in[0]), l->in[0].shape[0], l->in[0].shape[1]};
    step_settings settings = {a->columns, a->column_count, a->loss_column, a->passes, a->clip, a->loss_scale_interval};
    LAUNCH(step_result, 1, BLOCK, 0, stream, settings, t, data<const double>(&l->in[1]), data<double>(&l->out[0]),
           data<double>(&l->out[1]), data<double>(&l->out[2]));
}

extern "C" const cuda_kernel cuda_step_result = {NULL, queue};
