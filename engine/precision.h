/* The number formats of a step: what is stored as what, and what travels. All zero: fp32 everywhere.
 *
 * Always fp32: master weights, optimizer states, gradients of shards, statistics. Arithmetic is fp32 at least. */
#ifndef FSDP_ENGINE_PRECISION_H
#define FSDP_ENGINE_PRECISION_H

#include "engine/device/dtype.h"

#include <stdbool.h>

typedef struct precision_settings {
    dtype storage;     /* of activations and gathered parameters: fp32, bf16 or fp16 (A in engine/device/operation.h) */
    dtype gradient;    /* of whole parameters' gradients: fp32 or storage (G there) */
    dtype wire;        /* of gradients between ranks: fp32 or bf16 */
    bool tf32;         /* matmuls may round fp32 operands to TF32 */
    double loss_scale; /* of the first step (engine/device/update.h); 0: gradients are not scaled */
    int64_t loss_scale_interval; /* good steps after which it doubles; 0: it stays */
} precision_settings;

#endif
