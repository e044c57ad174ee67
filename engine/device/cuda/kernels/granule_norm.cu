/* granule_norm: squares[k] (fp64) = the sum of squares of each granule of a gradient shard[k granule] (fp32), over the
 * segments only. A block sums a granule: segment after segment, inside one as its position in the granule says, so that
 * the bits depend neither on which rank holds the granule nor on how many launches the segments take. */
#include "engine/device/cuda/kernels.h"

#include "reduce.cuh"
#include "segments.cuh"
#include "storage.cuh"

enum { THREADS = 1024 };

/* This thread's part of the squares of elements [begin, end); N divides the alignment of `gradient`. */
template <int N> static __device__ double squares_of(const float *gradient, int64_t begin, int64_t end) {
    double total = 0;
    int64_t i = begin / N * N + (int64_t)threadIdx.x * N;
    for (; i < end; i += THREADS * N) {
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
                                    bool adds, double *squares) {
    __shared__ double partial[1][WARPS];
    for (int64_t g = blockIdx.x; g < granules; g += gridDim.x) {
        double total = adds ? squares[g] : 0;
        for (int i = 0; i < list.count; i++) {
            const segment &s = list.segments[i];
            int64_t begin = max(s.offset, g * granule), end = min(s.offset + s.count, (g + 1) * granule);
            if (begin < end)
                total += block_sum(squares_of<N>(gradient, begin, end), partial);
        }
        __syncthreads(); /* all have read squares[g] */
        if (threadIdx.x == 0)
            squares[g] = total;
    }
}

template <int N> static void queue_segments(const launch *l, cudaStream_t stream) {
    const attributes *a = &l->attributes;
    int64_t granules = operand_count(&l->out[0]), first = 0;
    do { /* once without segments, for zeros */
        LAUNCH((granule_norm<N>), grid_of(granules), THREADS, 0, stream, segments_from(a, first),
               data<const float>(&l->in[0]), granules, a->granule, first > 0, data<double>(&l->out[0]));
        first += SEGMENTS;
    } while (first < a->segment_count);
}

static void queue(const launch *l, cudaStream_t stream) {
    constexpr int N = per_vector<float>::count;
    if (operand_count(&l->out[0]) == 0)
        return;
    if (rows_aligned(&l->in[0], 0) && l->attributes.granule % N == 0)
        queue_segments<N>(l, stream);
    else
        queue_segments<1>(l, stream);
}

extern "C" const cuda_kernel cuda_granule_norm = {NULL, queue};
