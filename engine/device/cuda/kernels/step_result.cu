/* step_result: result[R] and update_count[1] from contributions[ranks, c] and scalars[S], all fp64, in the one order
 * that update.h names, so that every rank computes the same bits: a block fetches values together, and one thread adds
 * them one after another. */
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

static __global__ void finish(contribution_table t, int64_t loss_column, int64_t passes, double clip,
                              const double *scalars, const running_squares *running, double *result,
                              double *update_count) {
    __shared__ double fetched[BLOCK];
    double loss = 0;
    for (int64_t begin = 0; begin < passes * t.ranks; begin += BLOCK) {
        int64_t m = begin + threadIdx.x;
        if (m < passes * t.ranks)
            fetched[threadIdx.x] = t.values[m % t.ranks * t.width + loss_column + m / t.ranks];
        __syncthreads();
        for (int i = 0; threadIdx.x == 0 && i < min(passes * t.ranks - begin, (int64_t)BLOCK); i++)
            loss += fetched[i];
        __syncthreads(); /* before the next are fetched */
    }
    if (threadIdx.x > 0)
        return;
    loss *= scalars[SCALAR_GRADIENT_SCALE];
    double norm = sqrt(running->squares);
    bool bad = !isfinite(loss) || !isfinite(norm);
    result[RESULT_LOSS] = loss;
    result[RESULT_NORM] = norm;
    result[RESULT_CLIP] = clip > 0 ? fmin(1.0, clip / (norm + 1e-6)) : 1;
    result[RESULT_BAD] = bad;
    result[RESULT_BAD_UNIT] = running->bad_unit;
    *update_count += bad ? 0 : 1;
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
    LAUNCH(finish, 1, BLOCK, 0, stream, t, a->loss_column, a->passes, a->clip, data<const double>(&l->in[1]), running,
           data<double>(&l->out[0]), data<double>(&l->out[1]));
}

extern "C" const cuda_kernel cuda_step_result = {workspace, queue};
