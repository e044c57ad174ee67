/* What the environment says about the simulated device; see simcuda.h. */
#ifndef SIMCUDA_SETTINGS_H
#define SIMCUDA_SETTINGS_H

#include <cstddef>

namespace simcuda {

struct settings {
    size_t memory, pinned;
    int devices;
    int architecture; /* 80: compute capability 8.0 */
    int driver;
    bool races;
};
const settings &environment();

/* Most bytes of shared memory for a block that asks for them. */
size_t shared_limit();
enum : size_t { SHARED_LIMIT_UNASKED = 48 * 1024 };

} // namespace simcuda

#endif
