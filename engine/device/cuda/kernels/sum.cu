/* sum: out[1] (fp64) = the sum of x[n] (fp32), in fp64: thread t adds x[t], x[t + threads] ..., then threads are added.
 * The token losses of one micro-batch are few: one block. */
#include "engine/device/cuda/kernels.h"

#include "reduce.cuh"
#include "storage.cuh"

enum { THREADS = 1024 };

template <int N> static __global__ void sum(const float *x, int64_t count, double *out) {
    __shared__ double partial[1][WARPS];
    double total = 0;
    int64_t i = (int64_t)threadIdx.x * N;
    for (; i + N <= count; i += THREADS * N) {
        floats<N> values = load<N>(x + i);
        for (int j = 0; j < N; j++)
            total += (double)values.v[j];
    }
    for (; i < count; i++) /* of the one thread that has fewer than N left */
        total += (double)x[i];
    total = block_sum(total, partial);
    if (threadIdx.x == 0)
        *out = total;
}

static void queue(const launch *l, cudaStream_t stream) {
    const operand *x = &l->in[0];
    int64_t count = operand_count(x);
    if (rows_aligned(x, 0))
        LAUNCH((sum<per_vector<float>::count>), 1, THREADS, 0, stream, data<const float>(x), count,
               data<double>(&l->out[0]));
    else
        LAUNCH((sum<1>), 1, THREADS, 0, stream, data<const float>(x), count, data<double>(&l->out[0]));
}

extern "C" const cuda_kernel cuda_sum = {NULL, queue};
