/* What stands beside 2 bytes of memory that threads share: their last write and their last read, 64 bits each.
 *
 *   bits 63..36 serial   which block of which work, counted from 1 over the whole run
 *   bits 35..26 thread   within the block
 *   bits 25..4  stamp    the block's time (barriers counted) when the thread last passed one
 *   bits 3..2            of a write: atomic, in flight; of a read: how many threads
 *   bits 1..0   mask     which of the 2 bytes
 *
 * An access is ordered behind an earlier one of its block when it is by the same thread, when a barrier of the block
 * lies between, or when one of the warp does and both are lanes of that warp. */
#ifndef SIMCUDA_SHADOW_H
#define SIMCUDA_SHADOW_H

#include <cstdint>

namespace simcuda {

struct cell {
    uint64_t write, read;
};

enum : uint64_t {
    CELL_MASK = 3,
    CELL_ATOMIC = 4,
    CELL_IN_FLIGHT = 8,
    CELL_READERS = 12, /* the field: */
    CELL_ONE_READER = 0,
    CELL_WARP_READERS = 4,
    CELL_BLOCK_READERS = 8,
    CELL_GRID_READERS = 12,
    CELL_LATEST_SERIAL = (1u << 28) - 1,
    CELL_LATEST_STAMP = (1u << 22) - 1
};

inline uint64_t cell_key(uint64_t serial, uint32_t thread, uint32_t stamp) {
    return serial << 36 | (uint64_t)thread << 26 | (uint64_t)stamp << 4;
}
inline uint32_t cell_serial(uint64_t entry) {
    return (uint32_t)(entry >> 36);
}
inline uint32_t cell_thread(uint64_t entry) {
    return (uint32_t)(entry >> 26) & 1023u;
}
inline uint32_t cell_stamp(uint64_t entry) {
    return (uint32_t)(entry >> 4) & CELL_LATEST_STAMP;
}

} // namespace simcuda

#endif
