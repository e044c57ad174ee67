/* What this build of the CUDA device runs on; tests/simcuda/include has the other one. */
#ifndef FSDP_ENGINE_DEVICE_CUDA_PTX_CUDA_PLATFORM_H
#define FSDP_ENGINE_DEVICE_CUDA_PTX_CUDA_PLATFORM_H

enum { CUDA_PLATFORM_SIMULATED = 0 };

#endif
