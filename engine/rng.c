#include "engine/rng.h"

#include <math.h>

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

/* Two normals from two words. The radius needs a uniform above zero, hence the half. */
static void box_muller(uint32_t a, uint32_t b, float *pair) {
    const float radius = sqrtf(-2.0f * logf(((float)(a >> 8) + 0.5f) * 0x1p-24f));
    const float angle = 6.2831853f * ((float)(b >> 8) * 0x1p-24f);
    pair[0] = radius * cosf(angle);
    pair[1] = radius * sinf(angle);
}

void rng_normals(uint64_t seed, uint64_t stream, uint64_t first, uint64_t count, float *values) {
    for (uint64_t at = first; at < first + count;) {
        uint32_t words[4];
        float four[4];
        rng_words(seed, stream, at / 4, words);
        box_muller(words[0], words[1], four);
        box_muller(words[2], words[3], four + 2);
        for (uint64_t lane = at % 4; lane < 4 && at < first + count; lane++, at++)
            values[at - first] = four[lane];
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
