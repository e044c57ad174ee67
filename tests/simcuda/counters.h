/* What kernels and libraries do to global memory; simcuda_counters tells what is counted. */
#ifndef SIMCUDA_COUNTERS_H
#define SIMCUDA_COUNTERS_H

#include "races.h"

namespace simcuda {

extern bool counting;

void counters_launch(const work &owner);
void counters_access(const accessor &a, uintptr_t address, size_t bytes, access_kind kind, size_t first_time);
void counters_block_end(const device_block &b); /* the accesses of its warps are put together */

} // namespace simcuda

#endif
