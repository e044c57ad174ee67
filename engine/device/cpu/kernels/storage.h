/* Tensors are stored as fp32, bf16 or fp16 and computed with as vectors of fp32: loads that widen, stores that round to
 * nearest even, for each of the three storages.
 *
 * A file that is compiled for one storage (KERNEL_STORAGE, see kernels.h) writes `stored` for the type of an element
 * and stored_load for vector_load, and is the same source for all of them. */
#ifndef FSDP_ENGINE_DEVICE_CPU_KERNELS_STORAGE_H
#define FSDP_ENGINE_DEVICE_CPU_KERNELS_STORAGE_H

#include "engine/device/cpu/kernels.h"
#include "engine/device/cpu/kernels/vector_math.h"
#include "engine/device/half.h"

typedef float storage_fp32;
typedef uint16_t storage_bf16, storage_fp16;

typedef uint16_t vector_u16 __attribute__((vector_size(VECTOR_BYTES / 2)));      /* LANES of them */
typedef uint16_t vector_half_u16 __attribute__((vector_size(VECTOR_BYTES / 4))); /* DOUBLE_LANES */
typedef uint32_t vector_half_bits __attribute__((vector_size(VECTOR_BYTES / 2)));

/* ---- a vector ---- */

static inline vector load_fp32(const storage_fp32 *from) {
    return vector_load(from);
}
static inline void store_fp32(storage_fp32 *to, vector v) {
    vector_store(to, v);
}

static inline vector load_bf16(const storage_bf16 *from) {
    vector_u16 half;
    memcpy(&half, from, sizeof half);
    return (vector)(__builtin_convertvector(half, vector_bits) << 16);
}
static inline void store_bf16(storage_bf16 *to, vector v) {
    vector_bits bits = (vector_bits)v, rounded = bits + 0x7fff + (bits >> 16 & 1);
    vector_bits quiet = bits | 0x400000; /* a NaN, which rounding could carry into infinity */
    vector_bits kept = (vector_bits)vector_select(v == v, (vector)rounded, (vector)quiet) >> 16;
    vector_u16 half = __builtin_convertvector(kept, vector_u16);
    memcpy(to, &half, sizeof half);
}

#if defined(__AVX512F__)
static inline vector load_fp16(const storage_fp16 *from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
}
static inline void store_fp16(storage_fp16 *to, vector v) {
    _mm256_storeu_si256((__m256i *)to, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
#elif defined(__F16C__)
static inline vector load_fp16(const storage_fp16 *from) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
}
static inline void store_fp16(storage_fp16 *to, vector v) {
    _mm_storeu_si128((__m128i *)to, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
#else
static inline vector load_fp16(const storage_fp16 *from) {
    vector v;
    for (int i = 0; i < LANES; i++)
        v[i] = float_from_f16(from[i]);
    return v;
}
static inline void store_fp16(storage_fp16 *to, vector v) {
    for (int i = 0; i < LANES; i++)
        to[i] = f16_from_float(v[i]);
}
#endif

/* ---- half a vector, as many elements as there are in a vector of doubles ---- */

static inline vector_half load_half_fp32(const storage_fp32 *from) {
    vector_half v;
    memcpy(&v, from, sizeof v);
    return v;
}
static inline vector_half load_half_bf16(const storage_bf16 *from) {
    vector_half_u16 half;
    memcpy(&half, from, sizeof half);
    return (vector_half)(__builtin_convertvector(half, vector_half_bits) << 16);
}
static inline vector_half load_half_fp16(const storage_fp16 *from) {
#if defined(__AVX512F__)
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
#elif defined(__F16C__)
    return _mm_cvtph_ps(_mm_loadu_si64(from));
#else
    vector_half v;
    for (int i = 0; i < DOUBLE_LANES; i++)
        v[i] = float_from_f16(from[i]);
    return v;
#endif
}

/* ---- one element ---- */

static inline float widen_fp32(storage_fp32 value) {
    return value;
}
static inline storage_fp32 narrow_fp32(float value) {
    return value;
}
static inline float widen_bf16(storage_bf16 value) {
    return float_from_bf16(value);
}
static inline storage_bf16 narrow_bf16(float value) {
    return bf16_from_float(value);
}
static inline float widen_fp16(storage_fp16 value) {
    return float_from_f16(value);
}
static inline storage_fp16 narrow_fp16(float value) {
    return f16_from_float(value);
}

/* ---- runs of elements, of a storage that is known when they are called ---- */

#define WIDEN(storage)                                                                                                 \
    static inline void widen_run_##storage(const storage_##storage *from, int64_t count, float *to) {                  \
        int64_t i = 0;                                                                                                 \
        for (; i + LANES <= count; i += LANES)                                                                         \
            vector_store(to + i, load_##storage(from + i));                                                            \
        for (; i < count; i++)                                                                                         \
            to[i] = widen_##storage(from[i]);                                                                          \
    }                                                                                                                  \
    static inline void narrow_run_##storage(const float *from, int64_t count, storage_##storage *to) {                 \
        int64_t i = 0;                                                                                                 \
        for (; i + LANES <= count; i += LANES)                                                                         \
            store_##storage(to + i, vector_load(from + i));                                                            \
        for (; i < count; i++)                                                                                         \
            to[i] = narrow_##storage(from[i]);                                                                         \
    }
WIDEN(fp32)
WIDEN(bf16)
WIDEN(fp16)
#undef WIDEN

/* to[i] = element first + i of a tensor of any storage */
static inline void widen_run(dtype type, const void *from, int64_t first, int64_t count, float *to) {
    switch (type) {
    case DTYPE_BF16:
        widen_run_bf16((const storage_bf16 *)from + first, count, to);
        return;
    case DTYPE_F16:
        widen_run_fp16((const storage_fp16 *)from + first, count, to);
        return;
    default:
        widen_run_fp32((const storage_fp32 *)from + first, count, to);
    }
}
static inline void narrow_run(dtype type, const float *from, int64_t count, void *to, int64_t first) {
    switch (type) {
    case DTYPE_BF16:
        narrow_run_bf16(from, count, (storage_bf16 *)to + first);
        return;
    case DTYPE_F16:
        narrow_run_fp16(from, count, (storage_fp16 *)to + first);
        return;
    default:
        narrow_run_fp32(from, count, (storage_fp32 *)to + first);
    }
}

/* ---- the storage that a file is compiled for ---- */

#ifdef KERNEL_STORAGE
typedef STORAGE(storage) stored;

enum { STORED_ROUNDS = sizeof(stored) < sizeof(float) }; /* whether to store a result is to round it */

static inline float stored_get(const stored *from) {
    return STORAGE(widen)(*from);
}
static inline void stored_set(stored *to, float value) {
    *to = STORAGE(narrow)(value);
}
static inline vector stored_load(const stored *from) {
    return STORAGE(load)(from);
}
static inline void stored_store(stored *to, vector v) {
    STORAGE(store)(to, v);
}

/* The first min(count, LANES) elements, so that one loop body serves whole vectors and a row's end; the other lanes
 * hold `rest`. */
static inline vector stored_load_part(const stored *from, int64_t count, float rest) {
    float lanes[LANES];
    for (int i = 0; i < LANES; i++)
        lanes[i] = i < count ? stored_get(from + i) : rest;
    return vector_load(lanes);
}
static inline void stored_store_part(stored *to, int64_t count, vector v) {
    float lanes[LANES];
    vector_store(lanes, v);
    for (int64_t i = 0; i < count; i++)
        stored_set(to + i, lanes[i]);
}
static inline vector stored_load_up_to(const stored *from, int64_t count, float rest) {
    return __builtin_expect(count >= LANES, 1) ? stored_load(from) : stored_load_part(from, count, rest);
}
static inline void stored_store_up_to(stored *to, int64_t count, vector v) {
    if (__builtin_expect(count >= LANES, 1))
        stored_store(to, v);
    else
        stored_store_part(to, count, v);
}

/* The first min(count, DOUBLE_LANES) elements; zero in the other lanes. */
static inline vector_double stored_load_double(const stored *from, int64_t count) {
    vector_half half = {0};
    if (__builtin_expect(count >= DOUBLE_LANES, 1))
        half = STORAGE(load_half)(from);
    else
        for (int64_t i = 0; i < count; i++)
            half[i] = stored_get(from + i);
    return __builtin_convertvector(half, vector_double);
}

/* Element i of a gradient of a parameter, which is fp32 or stored. */
static inline double gradient_get(const operand *gradient, int64_t i) {
    return gradient->type == DTYPE_F32 ? (double)((const float *)gradient->data)[i]
                                       : (double)stored_get((const stored *)gradient->data + i);
}
static inline void gradient_set(const operand *gradient, int64_t i, double value) {
    if (gradient->type == DTYPE_F32)
        ((float *)gradient->data)[i] = (float)value;
    else
        stored_set((stored *)gradient->data + i, (float)value);
}
#endif

#endif
