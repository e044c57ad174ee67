/* What a GPU multiplies matrices with at most:
 *
 *     FLOP/s = multiprocessors x clock x FLOP a clock of one multiprocessor
 *
 * The clock is the highest that the GPU says it has (cudaDevAttrClockRate). FLOP a clock follow from the compute
 * capability: bf16 and fp16 by tensor cores, dense, with sums in fp32; TF32 half of that; fp32 two (a multiplication
 * and an addition) for each of its units. With the clocks behind NVIDIA's data sheets this gives their figures, about:
 * A100 (1.41 GHz) 312 TFLOP/s in bf16, L40S (2.52 GHz) 366 of the 362 there, H100 SXM (1.83 GHz) 989; the 2,250 of a
 * B200 are 148 multiprocessors at 1.86 GHz. Some GPUs say a higher clock than that, and of 8.6 and 8.9 the GeForce ones
 * do half as much with sums in fp32: MFU is then too low rather than too high.
 */
#ifndef FSDP_ENGINE_DEVICE_CUDA_PEAK_H
#define FSDP_ENGINE_DEVICE_CUDA_PEAK_H

#include "engine/device/device.h"

typedef struct multiprocessors {
    int major, minor; /* compute capability */
    int count;
    double hertz;
} multiprocessors;

/* flops is NAN where the compute capability is not in the table. */
device_peak peak_of(const multiprocessors *m, dtype type, bool tf32);

#endif
