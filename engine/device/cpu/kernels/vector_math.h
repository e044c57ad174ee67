/* Vectors of floats as wide as the instruction set that a kernel is compiled for, and the few functions on them that
 * the kernels share. Everything is written with the compilers' vector types, so that one source serves every
 * instruction set; only the width and two instructions differ.
 *
 * Sums across the lanes of a vector add in one fixed order, so that results depend on the shape alone. */
#ifndef FSDP_ENGINE_DEVICE_CPU_KERNELS_VECTOR_MATH_H
#define FSDP_ENGINE_DEVICE_CPU_KERNELS_VECTOR_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX2__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif

enum { VECTOR_BYTES = LANES * (int)sizeof(float), DOUBLE_LANES = LANES / 2 };

typedef float vector __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t vector_mask __attribute__((vector_size(VECTOR_BYTES))); /* per lane all bits set, or none */
typedef uint32_t vector_bits __attribute__((vector_size(VECTOR_BYTES)));
typedef double vector_double __attribute__((vector_size(VECTOR_BYTES)));
typedef float vector_half __attribute__((vector_size(VECTOR_BYTES / 2))); /* as many lanes as a vector_double */

#if defined(__AVX512F__)
static inline vector vector_max(vector a, vector b) {
    return _mm512_max_ps(a, b);
}
static inline vector vector_sqrt(vector a) {
    return _mm512_sqrt_ps(a);
}
#elif defined(__AVX2__)
static inline vector vector_max(vector a, vector b) {
    return _mm256_max_ps(a, b);
}
static inline vector vector_sqrt(vector a) {
    return _mm256_sqrt_ps(a);
}
#elif defined(__x86_64__)
static inline vector vector_max(vector a, vector b) {
    return _mm_max_ps(a, b);
}
static inline vector vector_sqrt(vector a) {
    return _mm_sqrt_ps(a);
}
#else
static inline vector vector_max(vector a, vector b) {
    for (int i = 0; i < LANES; i++)
        a[i] = a[i] > b[i] ? a[i] : b[i];
    return a;
}
static inline vector vector_sqrt(vector a) {
    for (int i = 0; i < LANES; i++)
        a[i] = sqrtf(a[i]);
    return a;
}
#endif

/* Loads and stores at any address. */
static inline vector vector_load(const float *from) {
    vector v;
    memcpy(&v, from, sizeof v);
    return v;
}
static inline void vector_store(float *to, vector v) {
    memcpy(to, &v, sizeof v);
}

/* The first `count` < LANES floats; the other lanes hold `rest`. */
static inline vector vector_load_part(const float *from, int64_t count, float rest) {
    float lanes[LANES];
    for (int i = 0; i < LANES; i++)
        lanes[i] = i < count ? from[i] : rest;
    return vector_load(lanes);
}
static inline void vector_store_part(float *to, int64_t count, vector v) {
    float lanes[LANES];
    vector_store(lanes, v);
    for (int64_t i = 0; i < count; i++)
        to[i] = lanes[i];
}

/* The first min(count, LANES) floats, so that one loop body serves whole vectors and a row's end. */
static inline vector vector_load_up_to(const float *from, int64_t count, float rest) {
    return __builtin_expect(count >= LANES, 1) ? vector_load(from) : vector_load_part(from, count, rest);
}
static inline void vector_store_up_to(float *to, int64_t count, vector v) {
    if (__builtin_expect(count >= LANES, 1))
        vector_store(to, v);
    else
        vector_store_part(to, count, v);
}

static inline vector vector_set(float value) {
    return value - (vector){0}; /* keeps the sign of zero */
}

static inline vector vector_select(vector_mask mask, vector yes, vector no) {
    return (vector)(((vector_mask)yes & mask) | ((vector_mask)no & ~mask));
}

/* Across the lanes: halves are combined until one is left. */
static inline float vector_sum_lanes(vector v) {
    float lanes[LANES];
    vector_store(lanes, v);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lanes[i] += lanes[i + half];
    return lanes[0];
}
static inline float vector_max_lanes(vector v) {
    float lanes[LANES];
    vector_store(lanes, v);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lanes[i] = lanes[i] > lanes[i + half] ? lanes[i] : lanes[i + half];
    return lanes[0];
}
static inline double vector_double_sum_lanes(vector_double v) {
    double lanes[DOUBLE_LANES];
    memcpy(lanes, &v, sizeof lanes);
    for (int half = DOUBLE_LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lanes[i] += lanes[i + half];
    return lanes[0];
}

/* The first min(count, DOUBLE_LANES) floats, widened; zero in the other lanes. */
static inline vector_double vector_load_double(const float *from, int64_t count) {
    vector_half half = {0};
    if (__builtin_expect(count >= DOUBLE_LANES, 1))
        memcpy(&half, from, sizeof half);
    else
        for (int64_t i = 0; i < count; i++)
            half[i] = from[i];
    return __builtin_convertvector(half, vector_double);
}

/* e^x to about one unit in the last place. x = n ln 2 + r with |r| <= ln 2 / 2; e^r = 1 + r + r^2 q(r) with q
 * interpolating (e^r - 1 - r) / r^2 at Chebyshev nodes; then 2^n goes into the exponent. Results below the smallest
 * normal number are 0 (so is e^-inf), above the largest infinity; NaN stays NaN. */
static inline vector vector_exp(vector x) {
    const float round = 0x1.8p23f; /* adding it rounds to an integer, which then is in the lowest bits */
    vector shifted = x * 0x1.715476p0f + round;
    vector n = shifted - round;
    vector r = x - n * 0x1.62ep-1f; /* ln 2 in two parts, the first short enough for exact products */
    r = r - n * 0x1.0bfbe8p-15f;
    vector q = 0.5f + r * (0.166665767f + r * (0.0416665542f + r * (0.00836323288f + r * 0.00139262508f)));
    vector power = r + r * r * q + 1.0f;
    vector result = (vector)((vector_bits)power + ((vector_bits)shifted << 23));
    result = vector_select(x < -87.33654f, vector_set(0), result);
    return vector_select(x <= 88.72283f, result, x + INFINITY);
}

/* 1 / (1 + e^-x) to about two units in the last place. */
static inline vector vector_sigmoid(vector x) {
    return 1.0f / (1.0f + vector_exp(-x));
}

#endif
