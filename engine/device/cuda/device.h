/* Private to the CUDA module: the device, for the parts of the module that queue work of their own (nccl.c). */
#ifndef FSDP_ENGINE_DEVICE_CUDA_DEVICE_H
#define FSDP_ENGINE_DEVICE_CUDA_DEVICE_H

#include "engine/device/cuda/kernels.h"
#include "engine/device/device.h"

extern const device_functions device_cuda;

extern const cuda_kernel *const cuda_kernels[OPERATION_KIND_COUNT]; /* table.c; NULL: none */

/* The CUDA stream behind a stream number. */
cudaStream_t cuda_stream(const device *d, int stream);

/* Keeps the first failure of what is queued, for synchronize; true when nothing has failed so far. */
bool cuda_keep_failure(device *d, const error *e);

#endif
