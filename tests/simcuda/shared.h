/* Shared memory: the dynamic part, and the static arrays of kernels, which are thread-local variables (cuda_device.h)
 * found through the symbols of the module that holds them. */
#ifndef SIMCUDA_SHARED_H
#define SIMCUDA_SHARED_H

#include <cstddef>
#include <cstdint>
#include <string>

namespace simcuda {

struct cell;

struct shared_array {
    uintptr_t begin, end;
    cell *cells;      /* of the 2 bytes at begin & ~1 and on */
    std::string name; /* empty: a compiler's own variable, which is not checked */
};

/* Before a launch's first block, and before each of its blocks. */
void shared_begin(size_t dynamic_bytes);
void shared_poison(size_t dynamic_bytes);

/* The array that holds the address; nullptr: it is not in shared memory. */
const shared_array *shared_find(uintptr_t address);

/* If the address lies in the shared memory of a module but in no array, or behind the dynamic part: which array it is
 * closest behind, else empty. */
std::string shared_miss(uintptr_t address);

/* Forgets what was written: before serial numbers begin again. */
void shared_forget();

} // namespace simcuda

#endif
