/* The run's random numbers: one splitmix64 sequence from SIMCUDA_SEED, which every choice draws from. */
#ifndef SIMCUDA_RANDOM_H
#define SIMCUDA_RANDOM_H

#include <cstdint>

namespace simcuda {

struct random_state {
    uint64_t seed, position;
};
random_state &random_sequence();

inline uint64_t random_bits() {
    uint64_t x = random_sequence().position += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}
inline uint32_t random_below(uint32_t limit) { /* limit > 0; the bias is below 2^-32 * limit */
    return (uint32_t)((random_bits() >> 32) * limit >> 32);
}

} // namespace simcuda

#endif
