/* Number formats of tensors. */
#ifndef FSDP_ENGINE_DEVICE_DTYPE_H
#define FSDP_ENGINE_DEVICE_DTYPE_H

#include <stdint.h>

typedef enum dtype { DTYPE_F32, DTYPE_F64, DTYPE_BF16, DTYPE_F16, DTYPE_I32, DTYPE_COUNT } dtype;

static inline int64_t dtype_bytes(dtype type) {
    static const int64_t bytes[DTYPE_COUNT] = {4, 8, 2, 2, 4};
    return bytes[type];
}
static inline const char *dtype_name(dtype type) {
    static const char *const names[DTYPE_COUNT] = {"fp32", "fp64", "bf16", "fp16", "int32"};
    return names[type];
}

#endif
