/* Sums over the rows of a tall matrix, in two steps whose order depends on the shape alone: each tile of rows leaves
 * one row of partial sums in the workspace, then the partial sums of each column are added in double, tile by tile. */
#ifndef FSDP_ENGINE_DEVICE_CPU_KERNELS_PARTIAL_SUMS_H
#define FSDP_ENGINE_DEVICE_CPU_KERNELS_PARTIAL_SUMS_H

#include "engine/device/cpu/kernels/storage.h"
#include "engine/device/cpu/kernels/tiles.h"

enum { PARTIAL_TILES = 64, PARTIAL_ROWS = 8 }; /* at most so many tiles, of at least so many rows */

/* Rows of a tile of a matrix of `rows` rows. */
static inline int64_t partial_rows(int64_t rows) {
    return maximum(PARTIAL_ROWS, divide_up(rows, PARTIAL_TILES));
}
static inline int64_t partial_tiles(int64_t rows) {
    return divide_up(rows, partial_rows(rows));
}

/* to[c] (+)= sum over tiles of partial[tile * stride + c], for columns of one range. */
static inline void partial_sums_add(const float *partial, int64_t tiles, int64_t stride, tile_range columns, bool add,
                                    const operand *to) {
    for (int64_t c = columns.begin; c < columns.end; c += DOUBLE_LANES) {
        int64_t count = minimum(columns.end - c, DOUBLE_LANES);
        vector_double total = {0};
        for (int64_t t = 0; t < tiles; t++)
            total += vector_load_double(partial + t * stride + c, count);
        for (int64_t i = 0; i < count; i++)
            gradient_set(to, c + i, add ? gradient_get(to, c + i) + total[i] : total[i]);
    }
}

#endif
