/* Zeros in a device's memory. */
#ifndef FSDP_ENGINE_DEVICE_CLEAR_H
#define FSDP_ENGINE_DEVICE_CLEAR_H

#include "engine/device/device.h"

/* The first `bytes` of the memory, written from the host, before steps run: a block at a time, each waited for. */
void device_clear(device *d, const device_memory *memory, size_t bytes);

#endif
