/* The 16-bit number formats, converted to and from fp32 on the host.
 *
 * bf16 is the upper half of an fp32. fp16 is IEEE 754 binary16: 1 sign, 5 exponent (bias 15) and 10 fraction bits.
 * Widening is exact; narrowing rounds to nearest, ties to even. NaN becomes a quiet NaN with the same leading bits, as
 * processors do it, save that widening bf16 leaves all bits as they are. */
#ifndef FSDP_ENGINE_DEVICE_HALF_H
#define FSDP_ENGINE_DEVICE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float float_from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float float_from_bf16(uint16_t bits) {
    return float_from_bits((uint32_t)bits << 16);
}

static inline uint16_t bf16_from_float(float value) {
    uint32_t bits = float_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) /* NaN: rounding could carry it into infinity */
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static inline uint16_t f16_from_float(float value) {
    const uint32_t bits = float_bits(value), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) /* NaN */
        return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x1ffu));
    if (magnitude >= 0x477ff000u) /* 65520, half-way to what would be the next value, and above: infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) /* below 2^-14: multiples of 2^-24, to which an addition to 0.5 rounds */
        return (uint16_t)(sign | (float_bits(float_from_bits(magnitude) + 0.5f) - float_bits(0.5f)));
    return (uint16_t)(sign | ((magnitude + 0xfffu + (magnitude >> 13 & 1u) - ((127u - 15u) << 23)) >> 13));
}

static inline float float_from_f16(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, exponent = bits >> 10 & 0x1fu, fraction = bits & 0x3ffu;
    if (exponent == 0x1f) /* infinity or NaN, made quiet */
        return float_from_bits(sign | 0x7f800000u | fraction << 13 | (fraction != 0 ? 0x400000u : 0));
    if (exponent != 0)
        return float_from_bits(sign | (exponent + 127 - 15) << 23 | fraction << 13);
    /* Zero or subnormal, a multiple of 2^-24: every such value is a normal fp32, so flushing modes do not touch it. */
    float magnitude = (float)fraction * 0x1p-24f;
    return float_from_bits(sign | float_bits(magnitude));
}

#endif
