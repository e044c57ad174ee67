/* IEEE binary16 as cuda_fp16.h offers it: storage, conversions that round to nearest even, and pairs. Arithmetic is
 * left out: kernels compute in fp32. */
#ifndef SIMCUDA_CUDA_FP16_H
#define SIMCUDA_CUDA_FP16_H

#include "cuda_runtime.h"

#ifdef __cplusplus
struct alignas(2) __half {
    unsigned short __x;
    __half() = default;
    inline __half(float value);
    inline operator float() const;
};
struct alignas(4) __half2 {
    __half x, y;
};
typedef __half half;
typedef __half2 half2;

static inline __half __ushort_as_half(unsigned short bits) {
    return simcuda_bits<__half>(bits);
}
static inline unsigned short __half_as_ushort(__half value) {
    return value.__x;
}
static inline float __half2float(__half value) {
    const unsigned bits = value.__x, sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 0x1fu,
                   fraction = bits & 0x3ffu;
    if (exponent == 0x1f) /* infinity or NaN */
        return __uint_as_float(sign | 0x7f800000u | fraction << 13);
    if (exponent != 0)
        return __uint_as_float(sign | (exponent + 127 - 15) << 23 | fraction << 13);
    return __uint_as_float(sign | __float_as_uint((float)fraction * 0x1p-24f)); /* zero or subnormal */
}
static inline __half __float2half_rn(float value) {
    const unsigned bits = __float_as_uint(value), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    unsigned rounded;
    if (magnitude > 0x7f800000u) /* NaN: the one that the GPU gives */
        return __ushort_as_half(0x7fff);
    if (magnitude >= 0x477ff000u) /* from 65520, half-way to what would be the next value: infinity */
        rounded = 0x7c00u;
    else if (magnitude < 0x38800000u) /* below 2^-14: multiples of 2^-24, to which an addition to 0.5 rounds */
        rounded = __float_as_uint(__uint_as_float(magnitude) + 0.5f) - __float_as_uint(0.5f);
    else
        rounded = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - ((127u - 15u) << 23)) >> 13;
    return __ushort_as_half((unsigned short)(sign | rounded));
}
static inline __half __float2half(float value) {
    return __float2half_rn(value);
}
__half::__half(float value) : __x(__float2half_rn(value).__x) {
}
__half::operator float() const {
    return __half2float(*this);
}

static inline __half2 __halves2half2(__half low, __half high) {
    return {low, high};
}
static inline __half2 __floats2half2_rn(float low, float high) {
    return {__float2half_rn(low), __float2half_rn(high)};
}
static inline __half2 __float22half2_rn(float2 pair) {
    return __floats2half2_rn(pair.x, pair.y);
}
static inline float2 __half22float2(__half2 pair) {
    return {__half2float(pair.x), __half2float(pair.y)};
}
static inline float __low2float(__half2 pair) {
    return __half2float(pair.x);
}
static inline float __high2float(__half2 pair) {
    return __half2float(pair.y);
}
static inline __half __low2half(__half2 pair) {
    return pair.x;
}
static inline __half __high2half(__half2 pair) {
    return pair.y;
}
#endif

#endif
