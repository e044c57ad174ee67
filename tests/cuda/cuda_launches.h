/* Launches on the simulated GPU, for tests of CUDA kernels. Each operand has memory of its own, between bytes that
 * nothing may touch; an output that the operation overwrites, and the workspace, begin as bytes never written. */
#ifndef FSDP_TESTS_CUDA_CUDA_LAUNCHES_H
#define FSDP_TESTS_CUDA_CUDA_LAUNCHES_H

#include "engine/device/cuda/kernels.h"
#include "simcuda.h"
#include "support/launches.h"

/* How a launch is put on the device. */
typedef struct cuda_placement {
    bool share;    /* outputs that may take the bytes of an input do */
    int64_t shift; /* elements by which data stand behind a 256-byte boundary */
} cuda_placement;

/* A copy of a launch on host memory whose operands A and G (operation.h) are of these types. */
launch cuda_launch_typed(const launch *l, dtype activations, dtype gradients);

/* Runs l (on host memory, types as the kernel shall see them) on the simulated device and returns it with the device's
 * outputs, on host memory. */
launch cuda_launch_run(const cuda_kernel *kernel, const launch *l, cuda_placement placement);

/* Likewise; counts what its kernels do to global memory. */
launch cuda_launch_count(const cuda_kernel *kernel, const launch *l, cuda_placement placement,
                         simcuda_counters *counters);

/* The reference in fp64, on the values of l. */
launch cuda_launch_reference(const launch *l);

/* Fails the test unless output o of `got` is as near to `want` as one rounding to its type, and `near` in roundoffs of
 * fp32, allow (launches.h). */
void cuda_launch_compare(const launch *got, const launch *want, int o, accuracy near, const char *where);

#endif
