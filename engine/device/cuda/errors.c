#include "engine/device/cuda/errors.h"

#include <stddef.h>

typedef struct advice {
    cudaError_t error;
    const char *text;
} advice;

static const advice advices[] = {
    {cudaErrorMemoryAllocation,
     "the GPU has too little free memory: end what else runs on it (nvidia-smi lists it), or "
     "use more ranks, a smaller train.micro_batch or shard.recompute"},
    {cudaErrorIllegalAddress,
     "a kernel left its tensors, which is a fault of this program; with CUDA_LAUNCH_BLOCKING=1 "
     "the message names the operation"},
    {cudaErrorLaunchFailure,
     "a kernel failed on the GPU, which is a fault of this program or of the GPU; with "
     "CUDA_LAUNCH_BLOCKING=1 the message names the operation, and dmesg shows the driver's own"},
    {cudaErrorInvalidConfiguration, "a fault of this program: the GPU cannot run a kernel of this size"},
    {cudaErrorNoKernelImageForDevice, "the CUDA module holds no code for this GPU: build it with "
                                      "-DCMAKE_CUDA_ARCHITECTURES=native"},
    {cudaErrorDevicesUnavailable, "another process holds the GPU, or an administrator has closed it: nvidia-smi shows "
                                  "both"},
    {cudaErrorECCUncorrectable, "the GPU's memory is damaged: nvidia-smi -q -d ECC tells more; leave this GPU out"},
    {cudaErrorSystemNotReady, "the node's fabric manager or driver is not up yet: an administrator can start it"},
};

static const char *advice_for(cudaError_t found) {
    for (size_t i = 0; i < sizeof advices / sizeof *advices; i++)
        if (advices[i].error == found)
            return advices[i].text;
    return "nvidia-smi shows whether the GPU works at all";
}

bool cuda_good(cudaError_t found, const char *doing, error *e) {
    if (found == cudaSuccess)
        return true;
    return error_set_own(e, EXIT_LAUNCH, "%s: %s (%s); %s", doing, cudaGetErrorName(found), cudaGetErrorString(found),
                         advice_for(found));
}

bool cuda_launched(const char *doing, error *e) {
    return cuda_good(cudaGetLastError(), doing, e);
}
