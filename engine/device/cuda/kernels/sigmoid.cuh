/* 1 / (1 + e^-x); 0 and 1 where e^-x leaves fp32. */
#ifndef FSDP_ENGINE_DEVICE_CUDA_KERNELS_SIGMOID_CUH
#define FSDP_ENGINE_DEVICE_CUDA_KERNELS_SIGMOID_CUH

__device__ __forceinline__ float sigmoid(float x) {
    return 1 / (1 + expf(-x));
}

#endif
