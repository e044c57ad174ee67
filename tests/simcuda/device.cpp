/* The device as programs ask about it. */
#include "error.h"
#include "report.h"
#include "settings.h"
#include "stream.h"

#include <cstdio>
#include <cstring>

using namespace simcuda;

enum { MULTIPROCESSORS = 16, RUNTIME_VERSION = 13000 };

static thread_local int current_device;

/* What every call meets first on a machine without a usable device. */
static cudaError_t usable() {
    if (environment().driver < RUNTIME_VERSION / 1000 * 1000)
        return give(cudaErrorInsufficientDriver);
    return environment().devices < 1 ? give(cudaErrorNoDevice) : cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = environment().driver;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = RUNTIME_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count) {
    *count = 0;
    if (const cudaError_t error = usable())
        return error;
    *count = environment().devices;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    if (const cudaError_t error = usable())
        return error;
    if (device < 0 || device >= environment().devices)
        return give(cudaErrorInvalidDevice);
    current_device = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
    *device = current_device;
    return usable();
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device) {
    if (const cudaError_t error = usable())
        return error;
    if (device < 0 || device >= environment().devices)
        return give(cudaErrorInvalidDevice);
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "simulated GPU");
    p->uuid.bytes[0] = (char)device;
    p->totalGlobalMem = environment().memory;
    p->sharedMemPerBlock = SHARED_LIMIT_UNASKED;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 0x7fffffff;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->totalConstMem = 65536;
    p->major = environment().architecture / 10;
    p->minor = environment().architecture % 10;
    p->multiProcessorCount = MULTIPROCESSORS;
    p->canMapHostMemory = p->concurrentKernels = p->unifiedAddressing = p->streamPrioritiesSupported = 1;
    p->pciBusID = device + 1;
    p->asyncEngineCount = 2;
    p->memoryBusWidth = 5120;
    p->l2CacheSize = 40 << 20;
    p->maxThreadsPerMultiProcessor = 2048;
    p->sharedMemPerBlockOptin = shared_limit();
    p->reservedSharedMemPerBlock = 1024;
    p->sharedMemPerMultiprocessor = shared_limit() + 1024;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device) {
    cudaDeviceProp p;
    if (const cudaError_t error = cudaGetDeviceProperties(&p, device))
        return error;
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
        *value = p.maxThreadsPerBlock;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = (int)p.sharedMemPerBlock;
        break;
    case cudaDevAttrWarpSize:
        *value = p.warpSize;
        break;
    case cudaDevAttrClockRate: /* kHz; of a GPU that nobody should take for a fast one */
        *value = 1000000;
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = p.multiProcessorCount;
        break;
    case cudaDevAttrMemoryClockRate:
        *value = 1000000;
        break;
    case cudaDevAttrGlobalMemoryBusWidth:
        *value = p.memoryBusWidth;
        break;
    case cudaDevAttrL2CacheSize:
        *value = p.l2CacheSize;
        break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        *value = p.maxThreadsPerMultiProcessor;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = p.major;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = p.minor;
        break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = (int)p.sharedMemPerMultiprocessor;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = (int)p.sharedMemPerBlockOptin;
        break;
    default:
        return give(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int bytes, int device) {
    if (!text || bytes < 13 || device < 0 || device >= environment().devices)
        return give(cudaErrorInvalidValue);
    snprintf(text, (size_t)bytes, "0000:%02x:00.0", (unsigned)(device + 1) & 0xffu);
    return cudaSuccess;
}

cudaError_t cudaDeviceReset(void) {
    return cudaDeviceSynchronize();
}
