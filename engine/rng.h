/* Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
 * A value is a function of (seed, stream, index), never of who asks for it or in which order. */
#ifndef FSDP_ENGINE_RNG_H
#define FSDP_ENGINE_RNG_H

#include <stdint.h>

/* Four random words for counter (stream, index) under this seed. */
void rng_words(uint64_t seed, uint64_t stream, uint64_t index, uint32_t words[4]);

/* Uniform in (0, 1), 53 bits. */
double rng_uniform(uint64_t seed, uint64_t stream, uint64_t index);

/* Standard normals number first .. first + count of a stream, in fp32 (Box-Muller, four from the words of one counter):
 * values[i] depends on (seed, stream, first + i) alone. */
void rng_normals(uint64_t seed, uint64_t stream, uint64_t first, uint64_t count, float *values);

/* A pseudo-random permutation of 0 .. n-1 that needs no memory: where `position` goes under (seed, stream). A Feistel
 * network on the smallest even number of bits that holds n, walked until it lands inside. position < n, n > 0. */
uint64_t rng_permute(uint64_t seed, uint64_t stream, uint64_t n, uint64_t position);

#endif
