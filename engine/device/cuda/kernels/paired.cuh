/* fp32 values beside 16-bit ones: a thread that takes 8 neighbouring elements moves 16 bytes of these and 32 of those.
 * If it moved the 32 in two accesses of its own, those of neighbouring lanes would lie 32 bytes apart: every access
 * would move whole sectors of 32 bytes for half of each. So lanes 2k and 2k + 1 share the accesses to their 16 elements
 *
 *   elements      0 ... 3       4 ... 7           8 ... 11       12 ... 15
 *   accessed by   2k, first     2k + 1, first     2k, second     2k + 1, second
 *   belong to     2k            2k                2k + 1         2k + 1
 *
 * and exchange the middle ones. Blocks have one dimension. */
#ifndef FSDP_ENGINE_DEVICE_CUDA_KERNELS_PAIRED_CUH
#define FSDP_ENGINE_DEVICE_CUDA_KERNELS_PAIRED_CUH

#include "grid.cuh"
#include "storage.cuh"

/* Whether all lanes of the warp have one of the items, which threads take in turn. All lanes get the same answer. */
__device__ __forceinline__ bool whole_warp(int64_t item, int64_t items) {
    return item - threadIdx.x % WARP + WARP <= items;
}

__device__ __forceinline__ float of_other_lane(float value) {
    return __shfl_xor_sync(0xffffffffu, value, 1);
}

/* from[0 .. 7]; the next lane's begin behind them. By all lanes of a warp. */
__device__ __forceinline__ floats<8> load_shared(const float *from) {
    const bool odd = threadIdx.x % 2 != 0;
    const float *accessed = odd ? from - 4 : from;
    const floats<4> first = load<4>(accessed), second = load<4>(accessed + 8);
    floats<8> own;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float received = of_other_lane(odd ? first.v[j] : second.v[j]);
        own.v[j] = odd ? received : first.v[j];
        own.v[4 + j] = odd ? second.v[j] : received;
    }
    return own;
}

__device__ __forceinline__ void store_shared(float *to, floats<8> own) {
    const bool odd = threadIdx.x % 2 != 0;
    float *accessed = odd ? to - 4 : to;
    floats<4> first, second;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float received = of_other_lane(odd ? own.v[j] : own.v[4 + j]);
        first.v[j] = odd ? received : own.v[j];
        second.v[j] = odd ? own.v[4 + j] : received;
    }
    store(accessed, first);
    store(accessed + 8, second);
}

/* load and store of N elements; where these are 8 of fp32, in warps that are whole, in pairs of lanes. */
template <int N, typename T> __device__ __forceinline__ floats<N> load_paired(bool whole, const T *from) {
    if constexpr (N == 8 && sizeof(T) == sizeof(float))
        if (whole)
            return load_shared(from);
    return load<N>(from);
}

template <int N, typename T> __device__ __forceinline__ void store_paired(bool whole, T *to, floats<N> f) {
    if constexpr (N == 8 && sizeof(T) == sizeof(float))
        if (whole)
            return store_shared(to, f);
    store(to, f);
}

#endif
