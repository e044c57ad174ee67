/* Launches (cuda/launches.h) of the kernels that are linked into the test, on tests/simcuda. Bytes around an operand
 * must not be touched, and an output that is overwritten, and the workspace, begin as bytes never written. */
#ifndef FSDP_TESTS_CUDA_SIMULATED_LAUNCHES_H
#define FSDP_TESTS_CUDA_SIMULATED_LAUNCHES_H

#include "cuda/launches.h"
#include "simcuda.h"

/* cuda_launch_run; counts what its kernels do to global memory. */
launch cuda_launch_count(const launch *l, cuda_placement placement, simcuda_counters *counters);

#endif
