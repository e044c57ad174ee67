/* bfloat16 as cuda_bf16.h offers it: storage, conversions that round to nearest even, and pairs. Arithmetic is left
 * out: kernels compute in fp32. */
#ifndef SIMCUDA_CUDA_BF16_H
#define SIMCUDA_CUDA_BF16_H

#include "cuda_runtime.h"

#ifdef __cplusplus
struct alignas(2) __nv_bfloat16 {
    unsigned short __x;
    __nv_bfloat16() = default;
    inline __nv_bfloat16(float value);
    inline operator float() const;
};
struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
    return simcuda_bits<__nv_bfloat16>(bits);
}
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) {
    return value.__x;
}
static inline float __bfloat162float(__nv_bfloat16 value) {
    return __uint_as_float((unsigned)value.__x << 16);
}
static inline __nv_bfloat16 __float2bfloat16_rn(float value) {
    const unsigned bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return __ushort_as_bfloat16(0x7fff);
    return __ushort_as_bfloat16((unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16));
}
static inline __nv_bfloat16 __float2bfloat16(float value) {
    return __float2bfloat16_rn(value);
}
__nv_bfloat16::__nv_bfloat16(float value) : __x(__float2bfloat16_rn(value).__x) {
}
__nv_bfloat16::operator float() const {
    return __bfloat162float(*this);
}

static inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 low, __nv_bfloat16 high) {
    return {low, high};
}
static inline __nv_bfloat162 __floats2bfloat162_rn(float low, float high) {
    return {__float2bfloat16_rn(low), __float2bfloat16_rn(high)};
}
static inline __nv_bfloat162 __float22bfloat162_rn(float2 pair) {
    return __floats2bfloat162_rn(pair.x, pair.y);
}
static inline float2 __bfloat1622float2(__nv_bfloat162 pair) {
    return {__bfloat162float(pair.x), __bfloat162float(pair.y)};
}
static inline float __low2float(__nv_bfloat162 pair) {
    return __bfloat162float(pair.x);
}
static inline float __high2float(__nv_bfloat162 pair) {
    return __bfloat162float(pair.y);
}
static inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 pair) {
    return pair.x;
}
static inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 pair) {
    return pair.y;
}
#endif

#endif
