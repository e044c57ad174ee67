/* Device memory, and which host memory is pinned.
 *
 * The device's memory is one range of addresses, reserved at the first use and backed by the system as it is touched.
 * Beside every byte stands its state; allocations are kept in a map. Gaps of a page between allocations belong to
 * nobody. */
#ifndef SIMCUDA_MEMORY_H
#define SIMCUDA_MEMORY_H

#include <cstddef>
#include <cstdint>
#include <string>

namespace simcuda {

struct cell;

enum byte_state : uint8_t { BYTE_WRITTEN = 1, BYTE_FORBIDDEN = 2 };

struct device_memory {
    uintptr_t base;
    size_t bytes;   /* of the whole device */
    uint8_t *state; /* one per byte */
    cell *cells;    /* one per 2 bytes; nullptr when races are not looked for */
};
extern device_memory memory; /* bytes == 0 until memory_open */

void memory_open();

inline bool in_device(uintptr_t address) {
    return address - memory.base < memory.bytes;
}

struct range {
    uintptr_t begin, end;
};
/* The allocation that holds the address; empty if none does. */
range allocation_of(uintptr_t address);
extern range latest_allocation;
inline range allocation_near(uintptr_t address) { /* the same, quick for repeated addresses */
    if (address - latest_allocation.begin >= latest_allocation.end - latest_allocation.begin)
        latest_allocation = allocation_of(address);
    return latest_allocation;
}

/* "byte 12 of the allocation of 400 bytes", "4 bytes behind the allocation of ...". */
std::string describe_device_address(uintptr_t address);

/* Whether all bytes are pinned host memory. */
bool is_pinned(const void *p, size_t bytes);

/* Whether kernels may touch all bytes as well. A real GPU lets them touch all pinned memory; this project says where it
 * means to. */
bool is_mapped(const void *p, size_t bytes);

} // namespace simcuda

#endif
