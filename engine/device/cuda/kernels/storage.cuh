/* How kernels read and write tensors: values are stored as fp32, bf16 or fp16 and computed with in fp32.
 *
 * A kernel is a template over the storage type T and the number N of neighbouring elements that a thread takes at once:
 * as many as 128 bits hold where every row starts at 16 bytes, else one. */
#ifndef FSDP_ENGINE_DEVICE_CUDA_KERNELS_STORAGE_CUH
#define FSDP_ENGINE_DEVICE_CUDA_KERNELS_STORAGE_CUH

#include "engine/device/cuda/kernels.h"

#include "cuda_instructions.h"

#include <string.h>

/* Elements of T in 128 bits. */
template <typename T> struct per_vector {
    enum { count = 16 / sizeof(T) };
};

/* N neighbouring elements, widened. */
template <int N> struct floats { float v[N]; };

__device__ __forceinline__ float widen(float value) {
    return value;
}
__device__ __forceinline__ float widen(__nv_bfloat16 value) {
    return __bfloat162float(value);
}
__device__ __forceinline__ float widen(__half value) {
    return __half2float(value);
}

/* To nearest, ties to even. */
__device__ __forceinline__ void narrow(float value, float *to) {
    *to = value;
}
__device__ __forceinline__ void narrow(float value, __nv_bfloat16 *to) {
    *to = __float2bfloat16_rn(value);
}
__device__ __forceinline__ void narrow(float value, __half *to) {
    *to = __float2half_rn(value);
}

/* The value that is left after storing as T. */
template <typename T> __device__ __forceinline__ float rounded(float value) {
    T stored;
    narrow(value, &stored);
    return widen(stored);
}

/* from[0..N-1]; aligned to 16 bytes if they are a multiple of 16 bytes. */
template <int N, typename T> __device__ __forceinline__ floats<N> load(const T *from) {
    constexpr int per = per_vector<T>::count;
    floats<N> f;
    if constexpr (N % per == 0) {
#pragma unroll
        for (int i = 0; i < N; i += per) {
            vector_128 vector = load_128(from + i);
            T elements[per];
            memcpy(elements, &vector, sizeof vector);
#pragma unroll
            for (int j = 0; j < per; j++)
                f.v[i + j] = widen(elements[j]);
        }
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            f.v[i] = widen(from[i]);
    }
    return f;
}

template <int N, typename T> __device__ __forceinline__ void store(T *to, floats<N> f) {
    constexpr int per = per_vector<T>::count;
    if constexpr (N % per == 0) {
#pragma unroll
        for (int i = 0; i < N; i += per) {
            T elements[per];
#pragma unroll
            for (int j = 0; j < per; j++)
                narrow(f.v[i + j], &elements[j]);
            vector_128 vector;
            memcpy(&vector, elements, sizeof vector);
            store_128(to + i, vector);
        }
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            narrow(f.v[i], to + i);
    }
}

/* from[at .. at + N - 1] if `there`, else zeros: of an operand that may be absent, or is overwritten. */
template <int N, typename T> __device__ __forceinline__ floats<N> load_if(bool there, const T *from, int64_t at) {
    if (there)
        return load<N>(from + at);
    floats<N> zeros = {};
    return zeros;
}

/* Calls f with a value of the type that `type` names. */
template <typename function> static void with_storage(dtype type, function f) {
    if (type == DTYPE_BF16)
        f(__nv_bfloat16());
    else if (type == DTYPE_F16)
        f(__half());
    else
        f(float());
}

/* Likewise for gradients of parameters beside activations of T: they are fp32 or T. */
template <typename T, typename function> static void with_gradient_storage(dtype type, function f) {
    if (type == DTYPE_F32)
        f(float());
    else
        f(T());
}

/* T and N of a kernel. */
template <typename T, int N> struct access {
    typedef T type;
    enum { count = N };
};

/* Calls f with access<T, N>: T is what `type` names, N as many as 128 bits hold if `vectors`, else 1. */
template <typename function> static void with_access(dtype type, bool vectors, function f) {
    with_storage(type, [&](auto element) {
        typedef decltype(element) T;
        if (vectors)
            f(access<T, per_vector<T>::count>());
        else
            f(access<T, 1>());
    });
}

/* Whether rows of `width` elements start at 16 bytes. An absent operand does not matter. */
static inline bool rows_aligned(const operand *o, int64_t width) {
    return (uintptr_t)o->data % 16 == 0 && width * dtype_bytes(o->type) % 16 == 0;
}

template <typename T> static T *data(const operand *o) {
    return static_cast<T *>(o->data);
}

/* Whether the operation adds to output o. */
static inline bool launch_adds(const launch *l, int o) {
    return (l->accumulate >> o & 1) != 0;
}

#endif
