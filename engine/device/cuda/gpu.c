#include "engine/device/cuda/gpu.h"

#include "engine/device/cuda/errors.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

/* The oldest GPUs that kernels are written for: bf16, asynchronous copies and their tensor cores (Ampere). */
enum { LEAST_MAJOR = 8 };

/* CUDA writes versions as 1000 * major + 10 * minor. */
typedef struct cuda_version {
    int major, minor;
} cuda_version;

static cuda_version version_of(int number) {
    return (cuda_version){number / 1000, number % 1000 / 10};
}

static bool driver_error(error *e) {
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    const cuda_version has = version_of(driver), needs = version_of(runtime);
    if (driver == 0)
        return error_set_own(e, EXIT_LAUNCH,
                             "no NVIDIA driver is here (nvidia-smi shows it where there is one); install one, or use "
                             "device.kind = cpu");
    return error_set_own(e, EXIT_LAUNCH,
                         "the NVIDIA driver is too old: it knows CUDA %d.%d, and this program was built with CUDA "
                         "%d.%d; update the driver, or build with an older toolkit",
                         has.major, has.minor, needs.major, needs.minor);
}

static bool no_gpu_error(error *e) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible != NULL)
        return error_set_own(e, EXIT_LAUNCH,
                             "the NVIDIA driver shows no GPU: CUDA_VISIBLE_DEVICES is \"%s\"; unset it, or name GPUs "
                             "that nvidia-smi -L lists",
                             visible);
    return error_set_own(e, EXIT_LAUNCH,
                         "the NVIDIA driver shows no GPU; nvidia-smi -L lists those that this process may use (a "
                         "container or a batch job has to ask for them), or use device.kind = cpu");
}

static bool count_gpus(int *count, error *e) {
    const cudaError_t found = cudaGetDeviceCount(count);
    if (found == cudaErrorInsufficientDriver)
        return driver_error(e);
    if (found == cudaErrorNoDevice || (found == cudaSuccess && *count == 0))
        return no_gpu_error(e);
    return cuda_good(found, "cudaGetDeviceCount", e);
}

static void describe(const struct cudaDeviceProp *p, gpu *g) {
    int driver = 0;
    cudaDriverGetVersion(&driver);
    const cuda_version version = version_of(driver);
    snprintf(g->description, sizeof g->description, "%.80s, %.0f GiB, %d multiprocessors, driver for CUDA %d.%d",
             p->name, (double)p->totalGlobalMem / (double)(1 << 30), p->multiProcessorCount, version.major,
             version.minor);
    for (size_t i = 0; i < sizeof p->uuid.bytes; i++)
        snprintf(g->identity + 2 * i, 3, "%02x", (unsigned)(unsigned char)p->uuid.bytes[i]);
}

static bool find_processors(const struct cudaDeviceProp *p, gpu *g, error *e) {
    int kilohertz = 0;
    if (!cuda_good(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, g->number), "cudaDeviceGetAttribute", e))
        return false;
    g->processors = (multiprocessors){
        .major = p->major, .minor = p->minor, .count = p->multiProcessorCount, .hertz = 1e3 * kilohertz};
    return true;
}

/* In the letters of /sys. */
static void find_bus_address(gpu *g) {
    if (cudaDeviceGetPCIBusId(g->bus_address, (int)sizeof g->bus_address, g->number) != cudaSuccess)
        g->bus_address[0] = '\0';
    for (char *c = g->bus_address; *c != '\0'; c++)
        *c = (char)tolower((unsigned char)*c);
}

bool gpu_choose(int number, gpu *chosen, error *e) {
    struct cudaDeviceProp properties;
    int count = 0;
    *chosen = (gpu){0};
    if (!count_gpus(&count, e))
        return false;
    chosen->number = number % count;
    if (!cuda_good(cudaGetDeviceProperties(&properties, chosen->number), "cudaGetDeviceProperties", e))
        return false;
    describe(&properties, chosen);
    find_bus_address(chosen);
    if (!find_processors(&properties, chosen, e))
        return false;
    if (properties.major < LEAST_MAJOR)
        return error_set_own(e, EXIT_LAUNCH,
                             "GPU %d (%.80s) has compute capability %d.%d, and at least %d.0 is needed; use "
                             "CUDA_VISIBLE_DEVICES to leave it out, or device.kind = cpu",
                             chosen->number, properties.name, properties.major, properties.minor, LEAST_MAJOR);
    return cuda_good(cudaSetDevice(chosen->number), "cudaSetDevice", e);
}
