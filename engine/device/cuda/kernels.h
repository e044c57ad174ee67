/* The CUDA kernels: one per operation kind, each in a file of kernels/ named after what it computes. device.c launches
 * them through its table of kinds; matmul needs a library's handle and lives in matmul.c instead.
 *
 * Included by C and by CUDA C; everything here has C linkage.
 *
 * Storage, per operand of engine/device/operation.h (A: fp32, bf16 or fp16, one for all of a program's activations and
 * gathered parameters; G: fp32 or A):
 *
 *   A      activations and their gradients, weights, biases, tables, logits
 *   G      gradients of parameters; accumulated in fp32 arithmetic, stored as G
 *   fp32   norm statistics, logsumexp, losses per token, cosine and sine, master weights, moments, gradient shards
 *   fp64   scalars, result, contributions, update_count, sums
 *   int32  tokens, targets, order
 *   cast   from any of fp32, bf16, fp16 to any
 *
 * Tensors and views of flat parameters start at a multiple of 256 bytes; rows are dense, so a row is aligned to its
 * width only. Results are deterministic, whatever the device and its number of multiprocessors. */
#ifndef FSDP_ENGINE_DEVICE_CUDA_KERNELS_H
#define FSDP_ENGINE_DEVICE_CUDA_KERNELS_H

#include <cuda_runtime.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "engine/device/operation.h"
#include "engine/device/part_sum.h"

typedef struct cuda_kernel {
    /* Bytes that the arena must give for these shapes; NULL: none. Data pointers are not read, no CUDA call is made. */
    size_t (*workspace)(const launch *l);
    /* Queues the operation. Arrays that attributes point to (segments, columns) lie in device memory here, and in host
     * memory for `workspace`; their counts say what the host may know. No allocation, no waiting: it may be captured. A
     * launch error shows at cudaGetLastError; the caller looks. */
    void (*queue)(const launch *l, cudaStream_t stream);
} cuda_kernel;

extern const cuda_kernel cuda_embedding, cuda_embedding_backward, cuda_position_backward, cuda_norm, cuda_norm_backward,
    cuda_column_sum, cuda_rope, cuda_attention, cuda_attention_backward, cuda_gelu, cuda_gelu_backward, cuda_swiglu,
    cuda_swiglu_backward, cuda_cross_entropy, cuda_add, cuda_fill, cuda_sum, cuda_granule_norm, cuda_step_result,
    cuda_adamw, cuda_cast;

/* Queue what collectives need: a sum; adding 1 to a number in mapped host memory. */
void cuda_sum_parts(const part_sum *sum, cudaStream_t stream);
void cuda_count(int64_t *counter, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
