/* What this build of the CUDA device runs on; engine/device/cuda/ptx has the other one. */
#ifndef SIMCUDA_CUDA_PLATFORM_H
#define SIMCUDA_CUDA_PLATFORM_H

enum { CUDA_PLATFORM_SIMULATED = 1 };

#endif
