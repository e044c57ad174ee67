#include "random.h"

#include "simcuda.h"

#include <cstdlib>

namespace simcuda {

random_state &random_sequence() {
    static random_state state = [] {
        const char *text = getenv("SIMCUDA_SEED");
        const uint64_t seed = text ? strtoull(text, nullptr, 10) : 0;
        return random_state{seed, seed};
    }();
    return state;
}

} // namespace simcuda

uint64_t simcuda_run_seed(void) {
    return simcuda::random_sequence().seed;
}

uint64_t simcuda_random(void) {
    return simcuda::random_bits();
}
