/* Devices that are loaded beside the program when they are asked for, so that a program on a machine without them is
 * not larger, later or hungrier. There is one: CUDA, in libfsdp_cuda.so. */
#ifndef FSDP_ENGINE_DEVICE_MODULE_H
#define FSDP_ENGINE_DEVICE_MODULE_H

#include "engine/device/device.h"

/* What program and module must have in common to work together: their version, and the shapes of what they exchange. */
typedef struct device_module_interface {
    char version[32];
    size_t launch_bytes, device_functions_bytes, error_bytes;
    int operation_kinds, dtypes, scalars, streams;
} device_module_interface;

#define DEVICE_MODULE_INTERFACE                                                                                        \
    {                                                                                                                  \
        FSDP_VERSION, sizeof(launch), sizeof(device_functions), sizeof(error), OPERATION_KIND_COUNT, DTYPE_COUNT,      \
            SCALAR_COUNT, STREAM_COUNT                                                                                 \
    }

typedef struct device_module {
    device_module_interface interface;
    bool simulated; /* runs on the host (tests/simcuda), and needs neither driver nor GPU */
    const device_functions *device;
    const struct communication *communication; /* of several such devices (engine/device/communication.h) */
} device_module;

/* Loads libfsdp_cuda.so from beside the program, or from ../lib/fsdp_train, where it is installed. It stays loaded. */
bool device_module_load(const device_module **loaded, error *e);

/* Whether this machine has an NVIDIA driver. Loads nothing. */
bool device_module_driver(void);

#endif
