/* granule_norm: squares[k] (fp64) = the sum of squares of each granule of a gradient shard[k granule] (fp32), over the
 * segments only. A block sums a granule: segment after segment, inside one as its position in the granule says, so that
 * the bits do not depend on which rank holds the granule. */
#include "engine/device/cuda/kernels.h"

#include "reduce.cuh"
#include "segments.cuh"
#include "storage.cuh"

enum { THREADS = 1024 }; /* at most; as many as there are vectors in a granule, so that its size alone decides */

/* This thread's part of the squares of elements [begin, end); N divides the alignment of `gradient`. */
template <int N> static __device__ double squares_of(const float *gradient, int64_t begin, int64_t end) {
    double total = 0;
    int64_t i = begin / N * N + (int64_t)threadIdx.x * N;
    for (; i < end; i += blockDim.x * N) {
        if (i >= begin && i + N <= end) {
            floats<N> values = load<N>(gradient + i);
            for (int j = 0; j < N; j++)
                total += (double)values.v[j] * (double)values.v[j];
        } else {
            for (int64_t e = max(i, begin); e < min(i + N, end); e++)
                total += (double)gradient[e] * (double)gradient[e];
        }
    }
    return total;
}

template <int N>
static __global__ void granule_norm(segment_list list, const float *gradient, int64_t granules, int64_t granule,
                                    double *squares) {
    __shared__ double partial[1][WARPS];
    __shared__ int64_t first;
    for (int64_t g = blockIdx.x; g < granules; g += gridDim.x) {
        int64_t end = (g + 1) * granule;
        if (threadIdx.x == 0)
            first = first_segment_after(list, g * granule);
        __syncthreads();
        double total = 0;
        for (int64_t i = first; i < list.count && list.segments[i].offset < end; i++) {
            segment s = list.segments[i];
            int64_t from = max(s.offset, g * granule), to = min(s.offset + s.count, end);
            total += block_sum(squares_of<N>(gradient, from, to), partial);
        }
        if (threadIdx.x == 0)
            squares[g] = total;
        __syncthreads(); /* before first is overwritten */
    }
}

static void queue(const launch *l, cudaStream_t stream) {
    const attributes *a = &l->attributes;
    constexpr int N = per_vector<float>::count;
    segment_list list = {a->segments, a->segment_count};
    int64_t granules = operand_count(&l->out[0]);
    if (granules == 0)
        return;
    bool vectors = rows_aligned(&l->in[0], 0) && a->granule % N == 0;
    unsigned threads = (unsigned)minimum(THREADS, round_up(vectors ? a->granule / N : a->granule, WARP));
    if (vectors)
        LAUNCH((granule_norm<N>), grid_of(granules), threads, 0, stream, list, data<const float>(&l->in[0]), granules,
               a->granule, data<double>(&l->out[0]));
    else
        LAUNCH((granule_norm<1>), grid_of(granules), threads, 0, stream, list, data<const float>(&l->in[0]), granules,
               a->granule, data<double>(&l->out[0]));
}

extern "C" const cuda_kernel cuda_granule_norm = {NULL, queue};
