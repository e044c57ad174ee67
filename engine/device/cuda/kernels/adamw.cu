/* adamw: updates master, first and second moment of a shard (fp32) from its gradient (fp32), over the segments only;
 * nothing where the step's result is bad. Formulas: update.h.
 *
 * The factors that all elements share are computed in fp64 by one thread and rounded once, into the workspace. Then a
 * block updates what the segments have of one tile of the shard. */
#include "engine/device/cuda/kernels.h"

#include "engine/device/update.h"

#include "grid.cuh"
#include "segments.cuh"
#include "storage.cuh"

enum { TILE = 4 * BLOCK * per_vector<float>::count }; /* elements */

typedef struct adamw_factors {
    float clip;
    float beta_first, rest_first; /* beta, 1 - beta */
    float beta_second, rest_second;
    float decay;        /* 1 - rate * weight_decay */
    float step;         /* rate / (1 - beta_first^t) */
    float second_scale; /* 1 / sqrt(1 - beta_second^t) */
    float epsilon;
    float bad;
} adamw_factors;

typedef struct adamw_settings {
    double beta_first, beta_second, weight_decay, epsilon;
} adamw_settings;

static __global__ void compute_factors(adamw_settings a, const double *scalars, const double *result,
                                       const double *update_count, adamw_factors *f) {
    double rate = scalars[SCALAR_LEARNING_RATE], count = *update_count;
    f->clip = (float)result[RESULT_CLIP];
    f->beta_first = (float)a.beta_first, f->rest_first = (float)(1 - a.beta_first);
    f->beta_second = (float)a.beta_second, f->rest_second = (float)(1 - a.beta_second);
    f->decay = (float)(1 - rate * a.weight_decay);
    f->step = (float)(rate / (1 - pow(a.beta_first, count)));
    f->second_scale = (float)(1 / sqrt(1 - pow(a.beta_second, count)));
    f->epsilon = (float)a.epsilon;
    f->bad = (float)result[RESULT_BAD];
}

typedef struct adamw_shard {
    const float *gradient;
    float *master, *first, *second;
} adamw_shard;

template <int N>
static __device__ void update(const adamw_factors &f, float kept, const adamw_shard &shard, int64_t i) {
    floats<N> gradient = load<N>(shard.gradient + i), master = load<N>(shard.master + i);
    floats<N> first = load<N>(shard.first + i), second = load<N>(shard.second + i);
    for (int j = 0; j < N; j++) {
        float g = gradient.v[j] * f.clip;
        float m = first.v[j] * f.beta_first + g * f.rest_first;
        float v = second.v[j] * f.beta_second + g * g * f.rest_second;
        first.v[j] = m;
        second.v[j] = v;
        master.v[j] = master.v[j] * kept - m * f.step / (sqrtf(v) * f.second_scale + f.epsilon);
    }
    store(shard.first + i, first);
    store(shard.second + i, second);
    store(shard.master + i, master);
}

/* Elements [begin, end), by all threads of the block. */
template <int N>
static __device__ void update_range(const adamw_factors &f, float kept, const adamw_shard &shard, int64_t begin,
                                    int64_t end) {
    for (int64_t i = begin / N * N + threadIdx.x * N; i < end; i += BLOCK * N) {
        if (i >= begin && i + N <= end)
            update<N>(f, kept, shard, i);
        else /* a segment may begin or end inside a vector */
            for (int64_t e = max(i, begin); e < min(i + N, end); e++)
                update<1>(f, kept, shard, e);
    }
}

template <int N>
static __global__ void adamw(segment_list list, int64_t count, adamw_shard shard, const adamw_factors *factors) {
    __shared__ int64_t first;
    adamw_factors f = *factors;
    if (f.bad != 0)
        return;
    for (int64_t tile = blockIdx.x; tile * TILE < count; tile += gridDim.x) {
        int64_t end = (tile + 1) * TILE;
        if (threadIdx.x == 0)
            first = first_segment_after(list, tile * TILE);
        __syncthreads();
        for (int64_t i = first; i < list.count && list.segments[i].offset < end; i++) {
            segment s = list.segments[i];
            update_range<N>(f, s.decay ? f.decay : 1, shard, max(s.offset, tile * TILE), min(s.offset + s.count, end));
        }
        __syncthreads(); /* before first is overwritten */
    }
}

static size_t workspace(const launch *l) {
    (void)l;
    return sizeof(adamw_factors);
}

static void queue(const launch *l, cudaStream_t stream) {
    const attributes *a = &l->attributes;
    constexpr int N = per_vector<float>::count;
    segment_list list = {a->segments, a->segment_count};
    int64_t count = operand_count(&l->in[0]);
    if (list.count == 0 || count == 0)
        return;
    adamw_settings settings = {a->beta_first, a->beta_second, a->weight_decay, a->epsilon};
    adamw_factors *factors = static_cast<adamw_factors *>(l->workspace);
    LAUNCH(compute_factors, 1, 1, 0, stream, settings, data<const double>(&l->in[1]), data<const double>(&l->in[2]),
           data<const double>(&l->in[3]), factors);
    adamw_shard shard = {data<const float>(&l->in[0]), data<float>(&l->out[0]), data<float>(&l->out[1]),
                         data<float>(&l->out[2])};
    bool vectors = rows_aligned(&l->in[0], 0);
    for (int o = 0; o < OPERATION_OUTPUTS; o++)
        vectors = vectors && rows_aligned(&l->out[o], 0);
    unsigned grid = grid_of(divide_up(count, TILE));
    if (vectors)
        LAUNCH((adamw<N>), grid, BLOCK, 0, stream, list, count, shard, factors);
    else
        LAUNCH((adamw<1>), grid, BLOCK, 0, stream, list, count, shard, factors);
}

extern "C" const cuda_kernel cuda_adamw = {workspace, queue};
