/* Launches on a CUDA device, for tests of its kernels. Each operand has memory of its own, between bytes that nothing
 * may touch. Two files run them: simulated/launches.c the kernels that the test links, on tests/simcuda;
 * module/launches.c the device of libfsdp_cuda.so, on a real GPU where that was built for one. */
#ifndef FSDP_TESTS_CUDA_LAUNCHES_H
#define FSDP_TESTS_CUDA_LAUNCHES_H

#include "support/launches.h"

/* How a launch is put on the device. */
typedef struct cuda_placement {
    bool share;    /* outputs that may take the bytes of an input do */
    int64_t shift; /* elements by which data stand behind a 256-byte boundary */
    int64_t apart; /* further elements by which outputs do */
} cuda_placement;

/* Runs l (on host memory, types as the kernel shall see them) and returns it with the device's outputs, on host memory.
 */
launch cuda_launch_run(const launch *l, cuda_placement placement);

/* Whether the device executes a matmul that takes over others' work, of these shapes and types (device.h, `fuses`). */
bool cuda_launch_fuses(const launch *l);

/* What follows is executed in another order of blocks and threads, where the device can be told. */
void cuda_launch_order(uint64_t seed);

/* A copy of a launch on host memory; one whose operands A and G (operation.h) are of these types. */
launch cuda_launch_copy(const launch *l);
launch cuda_launch_typed(const launch *l, dtype activations, dtype gradients);

size_t cuda_operand_bytes(const operand *o);

/* The reference in fp64, on the values of l. */
launch cuda_launch_reference(const launch *l);

/* Fails the test unless output o of `got` is as near to `want` as one rounding to its type, and `near` in roundoffs of
 * fp32, allow (support/launches.h). */
void cuda_launch_compare(const launch *got, const launch *want, int o, accuracy near, const char *where);

#endif
