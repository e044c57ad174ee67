/* What the program finds in libfsdp_cuda.so: the one symbol that it exports. */
#include "engine/device/module.h"

#include "engine/device/cuda/device.h"
#include "engine/device/cuda/nccl.h"

#include <cuda_platform.h>

__attribute__((visibility("default"))) extern const device_module fsdp_device_module;

const device_module fsdp_device_module = {
    .interface = DEVICE_MODULE_INTERFACE,
    .simulated = CUDA_PLATFORM_SIMULATED,
    .device = &device_cuda,
    .communication = &communication_nccl,
};
