/* The processor that this program runs on. */
#ifndef FSDP_ENGINE_DEVICE_CPU_PROCESSOR_H
#define FSDP_ENGINE_DEVICE_CPU_PROCESSOR_H

#include "engine/device/cpu/kernels.h"

/* Kernel tables that this processor can execute, best first; *count >= 1, the last is the baseline. */
const cpu_kernel_table *processor_kernels(int *count);

/* Its name as the system gives it ("AMD EPYC"); "unknown processor" where the system gives none. */
void processor_name(char *name, size_t size);

#endif
