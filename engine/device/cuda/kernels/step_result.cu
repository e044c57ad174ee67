/* step_result: result[R], update_count[1] and loss_scale[L] from contributions[ranks, c] and scalars[S], all fp64, in
 * the one order that update.h names, so that every rank computes the same bits: a block fetches values together, and
 * one thread adds them one after another. */
#include "engine/device/cuda/kernels.h"

#include "engine/device/update.h"

#include "grid.cuh"
#include "storage.cuh"

/* Units come by value, 128 at a time (3 of the 4 KB that a kernel's arguments may take). */
enum { UNITS = 128 };

typedef struct unit_list {
    int64_t first;
    int count;
    granule_columns units[UNITS];
} unit_list;

typedef struct contribution_table {
    const double *values;
    int64_t ranks, width;
} contribution_table;

/* What sums hold between launches, in the workspace. */
typedef struct running_squares {
    double squares, bad_unit;
} running_squares;

/* Granule g of a unit. */
static __device__ double square_at(const contribution_table &t, const granule_columns &unit, int64_t g) {
    return t.values[g / unit.per_rank * t.width + unit.column + g % unit.per_rank];
}

static __global__ void add_squares(unit_list list, contribution_table t, running_squares *running) {
    __shared__ double fetched[BLOCK];
    running_squares r = {0, -1};
    if (threadIdx.x == 0 && list.first > 0)
        r = *running;
    for (int u = 0; u < list.count; u++) {
        const granule_columns &unit = list.units[u];
        for (int64_t begin = 0; begin < unit.granules; begin += BLOCK) {
            int64_t g = begin + threadIdx.x;
            if (g < unit.granules)
                fetched[threadIdx.x] = square_at(t, unit, g);
            __syncthreads();
            for (int i = 0; threadIdx.x == 0 && i < min(unit.granules - begin, (int64_t)BLOCK); i++) {
                r.squares += fetched[i];
                if (!isfinite(fetched[i]) && r.bad_unit < 0)
                    r.bad_unit = (double)(list.first + u);
            }
            __syncthreads(); /* before the next are fetched */
        }
    }
    if (threadIdx.x == 0)
        *running = r;
}

typedef struct finish_settings {
    int64_t loss_column, passes;
    double clip;
    int64_t loss_scale_interval;
} finish_settings;

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

static __device__ void write_result(const finish_settings &a, double loss, const running_squares &running,
                                    double *result, double *update_count, double *loss_scale) {
    double scale = loss_scale != NULL ? loss_scale[LOSS_SCALE] : 1, norm = sqrt(running.squares) / scale;
    bool bad = !isfinite(loss) || !isfinite(norm);
    bool overflow = bad && isfinite(loss) && a.loss_scale_interval > 0 && scale > 1;
    result[RESULT_LOSS] = loss;
    result[RESULT_NORM] = norm;
    result[RESULT_CLIP] = (a.clip > 0 ? fmin(1.0, a.clip / (norm + 1e-6)) : 1) / scale;
    result[RESULT_BAD] = bad;
    result[RESULT_BAD_UNIT] = running.bad_unit;
    result[RESULT_OVERFLOW] = overflow;
    result[RESULT_LOSS_SCALE] = scale;
    *update_count += bad ? 0 : 1;
    if (a.loss_scale_interval > 0)
        adjust_loss_scale(a.loss_scale_interval, bad, overflow, loss_scale);
}

static __global__ void finish(contribution_table t, finish_settings a, const double *scalars,
                              const running_squares *running, double *result, double *update_count,
                              double *loss_scale) {
    __shared__ double fetched[BLOCK];
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
    if (threadIdx.x == 0)
        write_result(a, loss * scalars[SCALAR_GRADIENT_SCALE], *running, result, update_count, loss_scale);
}

static size_t workspace(const launch *l) {
    (void)l;
    return sizeof(running_squares);
}

static void queue(const launch *l, cudaStream_t stream) {
    const attributes *a = &l->attributes;
    contribution_table t = {data<const double>(&l->in[0]), l->in[0].shape[0], l->in[0].shape[1]};
    running_squares *running = static_cast<running_squares *>(l->workspace);
    unit_list list = {};
    do { /* once without units, for zeros */
        list.count = (int)minimum(a->column_count - list.first, UNITS);
        for (int u = 0; u < list.count; u++)
            list.units[u] = a->columns[list.first + u];
        LAUNCH(add_squares, 1, BLOCK, 0, stream, list, t, running);
        list.first += UNITS;
    } while (list.first < a->column_count);
    finish_settings settings = {a->loss_column, a->passes, a->clip, a->loss_scale_interval};
    LAUNCH(finish, 1, BLOCK, 0, stream, t, settings, data<const double>(&l->in[1]), running, data<double>(&l->out[0]),
           data<double>(&l->out[1]), data<double>(&l->out[2]));
}

extern "C" const cuda_kernel cuda_step_result = {workspace, queue};
