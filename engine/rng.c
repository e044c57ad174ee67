#include "engine/rng.h"

#include <math.h>
#include <string.h>

void rng_words(uint64_t seed, uint64_t stream, uint64_t index, uint32_t words[4]) {
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t c[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)};
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)c[0] * 0xD2511F53u, b = (uint64_t)c[2] * 0xCD9E8D57u;
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ key[0], (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ key[1],
                            (uint32_t)a};
        for (int i = 0; i < 4; i++)
            c[i] = next[i];
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
    for (int i = 0; i < 4; i++)
        words[i] = c[i];
}

static double uniform_of(uint32_t high, uint32_t low) {
    uint64_t bits = ((uint64_t)high << 32 | low) >> 11;
    return ((double)bits + 0.5) * 0x1p-53;
}

double rng_uniform(uint64_t seed, uint64_t stream, uint64_t index) {
    uint32_t words[4];
    rng_words(seed, stream, index, words);
    return uniform_of(words[0], words[1]);
}

/* ---- normals ----
 *
 * A model has as many initial values as it has parameters, so they are made a block of counters at a time, in loops
 * without branches that compilers turn into vector instructions. */

enum { BLOCK = 128 };

/* The words of counters `index` .. index + BLOCK-1: words[w][i] is word w of counter index + i. */
static void block_words(uint64_t seed, uint64_t stream, uint64_t index, uint32_t words[4][BLOCK]) {
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (int i = 0; i < BLOCK; i++) {
        words[0][i] = (uint32_t)(index + (uint64_t)i);
        words[1][i] = (uint32_t)((index + (uint64_t)i) >> 32);
        words[2][i] = (uint32_t)stream;
        words[3][i] = (uint32_t)(stream >> 32);
    }
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < BLOCK; i++) {
            const uint64_t a = (uint64_t)words[0][i] * 0xD2511F53u, b = (uint64_t)words[2][i] * 0xCD9E8D57u;
            words[0][i] = (uint32_t)(b >> 32) ^ words[1][i] ^ key[0];
            words[1][i] = (uint32_t)b;
            words[2][i] = (uint32_t)(a >> 32) ^ words[3][i] ^ key[1];
            words[3][i] = (uint32_t)a;
        }
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
}

static inline uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Natural logarithm of a normal x > 0: x = 2^e m with m in [sqrt(1/2), sqrt(2)), ln m = 2 artanh((m-1) / (m+1)), whose
 * series has fallen below fp32's rounding after s^9. */
static inline float logarithm(float x) {
    const int32_t exponent = (int32_t)(bits_of(x) - 0x3f3504f3u) >> 23;
    const float m = float_of(bits_of(x) - ((uint32_t)exponent << 23));
    const float s = (m - 1) / (m + 1), q = s * s;
    return (float)exponent * 0.69314718f + 2 * s * (1 + q * (1 / 3.0f + q * (1 / 5.0f + q * (1 / 7.0f + q / 9))));
}

/* Cosine and sine of a whole turn times u, 0 <= u < 1: the nearest quarter turn is taken off exactly, and the Taylor
 * series of what is left, up to an eighth of a turn, have fallen below fp32's rounding after x^9 and x^10. */
static inline __attribute__((always_inline)) void cosine_and_sine(float u, float *cosine, float *sine) {
    const int32_t quarter = (int32_t)(4 * u + 0.5f);
    const float x = 6.2831853f * (u - 0.25f * (float)quarter), q = x * x;
    const float s = x * (1 + q * (-1 / 6.0f + q * (1 / 120.0f + q * (-1 / 5040.0f + q / 362880))));
    const float c = 1 + q * (-1 / 2.0f + q * (1 / 24.0f + q * (-1 / 720.0f + q * (1 / 40320.0f - q / 3628800))));
    const float a = quarter & 1 ? s : c, b = quarter & 1 ? c : s;
    *cosine = (quarter + 1) & 2 ? -a : a;
    *sine = quarter & 2 ? -b : b;
}

/* Two normals from two words. The radius needs a uniform above zero, hence the half. */
static inline __attribute__((always_inline)) void box_muller(uint32_t a, uint32_t b, float *first, float *second) {
    const float radius = sqrtf(-2.0f * logarithm(((float)(int32_t)(a >> 8) + 0.5f) * 0x1p-24f));
    float cosine, sine;
    cosine_and_sine((float)(int32_t)(b >> 8) * 0x1p-24f, &cosine, &sine);
    *first = radius * cosine;
    *second = radius * sine;
}

static void block_normals(uint64_t seed, uint64_t stream, uint64_t index, float values[4 * BLOCK]) {
    uint32_t words[4][BLOCK];
    block_words(seed, stream, index, words);
    for (int i = 0; i < BLOCK; i++) {
        box_muller(words[0][i], words[1][i], &values[4 * i], &values[4 * i + 1]);
        box_muller(words[2][i], words[3][i], &values[4 * i + 2], &values[4 * i + 3]);
    }
}

void rng_normals(uint64_t seed, uint64_t stream, uint64_t first, uint64_t count, float *values) {
    float block[4 * BLOCK];
    for (uint64_t done = 0; done < count;) {
        const uint64_t at = first + done, skip = at % 4, left = count - done;
        const uint64_t whole = 4 * BLOCK - skip, taken = left < whole ? left : whole;
        block_normals(seed, stream, at / 4, block);
        memcpy(values + done, block + skip, taken * sizeof *values);
        done += taken;
    }
}

/* The permutation's network must be one to one: a balanced Feistel network is, whatever its round function. */
uint64_t rng_permute(uint64_t seed, uint64_t stream, uint64_t n, uint64_t position) {
    unsigned half = 1;
    while (half < 32 && (UINT64_C(1) << (2 * half)) < n)
        half++;
    const uint64_t mask = (UINT64_C(1) << half) - 1;
    do {
        uint64_t left = position >> half, right = position & mask;
        for (uint64_t round = 0; round < 6; round++) {
            uint32_t words[4];
            rng_words(seed, stream, right << 8 | round, words);
            uint64_t next = left ^ (words[0] & mask);
            left = right;
            right = next;
        }
        position = left << half | right;
    } while (position >= n);
    return position;
}
