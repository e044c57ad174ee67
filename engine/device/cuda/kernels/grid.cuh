/* How work is cut into blocks. A kernel loops over its items with the grid as stride, so that any number of items fits
 * the grid's limits; what an item computes never depends on the number of blocks. */
#ifndef FSDP_ENGINE_DEVICE_CUDA_KERNELS_GRID_CUH
#define FSDP_ENGINE_DEVICE_CUDA_KERNELS_GRID_CUH

#include "engine/checked.h"

#include "cuda_instructions.h"

enum { WARP = 32, BLOCK = 256 };

/* Blocks in a grid's first dimension are at most 2^31 - 1. */
static inline unsigned grid_of(int64_t blocks) {
    return (unsigned)minimum(blocks, INT32_MAX);
}

/* Blocks of BLOCK threads with one item a thread. */
static inline unsigned grid_of_items(int64_t items) {
    return grid_of(divide_up(items, BLOCK));
}

/* The items of a thread: for (int64_t i = first_item(); i < items; i += item_stride()). */
__device__ __forceinline__ int64_t first_item(void) {
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ int64_t item_stride(void) {
    return (int64_t)gridDim.x * blockDim.x;
}

/* Threads of a block that works on rows: x threads share a row, each with about 4 of its packs (N neighbouring
 * elements) until x is the whole block; y rows at once. */
static inline dim3 row_block(int64_t packs) {
    unsigned x = WARP;
    while (x < BLOCK && 4 * x < packs)
        x *= 2;
    return dim3(x, BLOCK / x);
}

#endif
