/* Flushing of subnormal numbers. A softmax that underflows makes subnormals by the million, and an operation on one
 * costs a hundred cycles on common processors: a training step was measured to take twelve times longer. */
#ifndef FSDP_ENGINE_DEVICE_CPU_FLUSH_H
#define FSDP_ENGINE_DEVICE_CPU_FLUSH_H

/* From now on the calling thread reads and writes subnormals as zero (x86: FTZ and DAZ; arm64: FZ). */
void flush_subnormals(void);

#endif
