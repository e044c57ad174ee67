/* Sums and maxima over the threads of a warp or block, in one order: halves of a warp, then warps from first to last.
 * All threads of the block take part and all get the result. */
#ifndef FSDP_ENGINE_DEVICE_CUDA_KERNELS_REDUCE_CUH
#define FSDP_ENGINE_DEVICE_CUDA_KERNELS_REDUCE_CUH

#include "grid.cuh"

enum { WARPS = 1024 / WARP }; /* of the largest block */

template <typename value> __device__ __forceinline__ value warp_sum(value v) {
#pragma unroll
    for (int offset = WARP / 2; offset > 0; offset /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, offset);
    return v;
}

__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
    for (int offset = WARP / 2; offset > 0; offset /= 2)
        v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, offset));
    return v;
}

/* Sums of `count` values at once over the blockDim.x threads that share threadIdx.y. blockDim.x is a multiple of a
 * warp; partial is shared memory of its own. */
template <int count, typename value>
__device__ __forceinline__ void row_sum(value (&sums)[count], value (&partial)[count][WARPS]) {
#pragma unroll
    for (int i = 0; i < count; i++)
        sums[i] = warp_sum(sums[i]);
    int warps = (int)blockDim.x / WARP;
    if (warps == 1)
        return;
    int first = (int)threadIdx.y * warps;
    if (threadIdx.x % WARP == 0)
#pragma unroll
        for (int i = 0; i < count; i++)
            partial[i][first + (int)threadIdx.x / WARP] = sums[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < count; i++) {
        sums[i] = partial[i][first];
        for (int w = 1; w < warps; w++)
            sums[i] += partial[i][first + w];
    }
    __syncthreads(); /* before the next use of partial */
}

/* Over a block of one dimension. */
template <typename value> __device__ __forceinline__ value block_sum(value v, value (&partial)[1][WARPS]) {
    value sums[1] = {v};
    row_sum(sums, partial);
    return sums[0];
}

__device__ __forceinline__ float block_max(float v, float (&partial)[1][WARPS]) {
    v = warp_max(v);
    int warps = (int)blockDim.x / WARP;
    if (threadIdx.x % WARP == 0)
        partial[0][threadIdx.x / WARP] = v;
    __syncthreads();
    for (int w = 0; w < warps; w++)
        v = fmaxf(v, partial[0][w]);
    __syncthreads();
    return v;
}

#endif
