/* matmul on the CUDA device, by cuBLASLt. */
#ifndef FSDP_ENGINE_DEVICE_CUDA_MATMUL_H
#define FSDP_ENGINE_DEVICE_CUDA_MATMUL_H

#include "engine/device/operation.h"
#include "engine/error.h"

#include <cuda_runtime.h>

typedef struct cuda_matmul cuda_matmul;

bool cuda_matmul_open(cuda_matmul **opened, error *e);
void cuda_matmul_close(cuda_matmul *m);

/* Bytes of workspace that cuBLASLt may choose algorithms for; no CUDA call is made. */
size_t cuda_matmul_workspace(const launch *l);

/* Whether the library executes a matmul with a gelu or column sums (operation.h) in one go: for these shapes and types,
 * as far as its documentation says (m is NULL: without a GPU) and then as it says itself. */
bool cuda_matmul_fuses(cuda_matmul *m, const launch *l);

/* Queues c = op(a) op(b) + bias, or c += op(a) op(b), or one that `fuses` (operation.h). a, b and bias: A; c: A or, as
 * a gradient, G. Which algorithm runs is asked of the library once per combination of shapes, types and alignments. */
bool cuda_matmul_queue(cuda_matmul *m, const launch *l, cudaStream_t stream, error *e);

#endif
