/* Copies of blocks of a matrix in the order in which microkernel.h reads them. */
#ifndef FSDP_ENGINE_DEVICE_CPU_KERNELS_PACK_H
#define FSDP_ENGINE_DEVICE_CPU_KERNELS_PACK_H

#include "engine/checked.h"
#include "engine/device/cpu/kernels.h"
#include "engine/device/cpu/kernels/microkernel.h"
#include "engine/device/cpu/kernels/storage.h"

/* A matrix in memory: element (i, k) is data[i * stride + k], or data[k * stride + i] when `transposed`. The index k
 * is the one that a product sums over. Elements are of the storage that the functions below are compiled for; what is
 * packed is fp32. */
typedef struct matrix {
    const void *data;
    int64_t stride;
    bool transposed;
} matrix;

/* Elements (i .. i + rows, k .. k + depth) to packed[rows][ROW_STRIDE]. */
void STORED(pack_rows)(const matrix *from, int64_t i, int64_t rows, int64_t k, int64_t depth, float *packed);

/* The same elements, i now being columns of the product, to packed[panels][depth][PANEL], panels panel_stride(depth)
 * apart; columns that the last panel lacks are zero. */
void STORED(pack_panels)(const matrix *from, int64_t i, int64_t columns, int64_t k, int64_t depth, float *packed);

/* For what is not a tensor but scratch, and thus fp32. */
#define PACK_ROWS_FP32 KERNEL_EXPAND(KERNEL(pack_rows), fp32)
void PACK_ROWS_FP32(const matrix *from, int64_t i, int64_t rows, int64_t k, int64_t depth, float *packed);

/* Where a block lies in memory, to be fetched into the cache while the block before it is worked on. */
typedef struct region {
    const char *first;
    int64_t stride, rows, bytes; /* bytes: from row to row; of a row */
} region;

static inline region matrix_region(const matrix *of, int64_t i, int64_t count, int64_t k, int64_t depth) {
    const int64_t size = sizeof(stored), first = of->transposed ? k * of->stride + i : i * of->stride + k;
    return (region){.first = (const char *)of->data + first * size,
                    .stride = of->stride * size,
                    .rows = of->transposed ? depth : count,
                    .bytes = (of->transposed ? count : depth) * size};
}

/* One of `parts` parts of the region; nothing where it is empty. */
static inline fetch region_part(const region *r, int64_t part, int64_t parts) {
    int64_t per_row = divide_up(r->bytes, LINE), lines = r->rows * per_row, first = lines * part / parts;
    return (fetch){.data = r->first,
                   .stride = r->stride,
                   .per_row = (uint32_t)maximum(1, per_row),
                   .first = (uint32_t)first,
                   .count = (uint32_t)(lines * (part + 1) / parts - first)};
}

#endif
