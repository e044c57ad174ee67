/* How the kernels of this folder cut their work: a tile is a run of elements or rows whose length depends on the
 * shape alone, long enough to hide the cost of handing it to a thread and short enough to stay in a core's cache. */
#ifndef FSDP_ENGINE_DEVICE_CPU_KERNELS_TILES_H
#define FSDP_ENGINE_DEVICE_CPU_KERNELS_TILES_H

#include "engine/checked.h"
#include "engine/device/cpu/pool.h"

enum { TILE_ELEMENTS = 16384 };

/* Half-open range of rows or elements of one tile. */
typedef struct tile_range {
    int64_t begin, end;
} tile_range;

static inline tile_range tile_range_of(int64_t tile, int64_t length, int64_t total) {
    return (tile_range){tile * length, minimum((tile + 1) * length, total)};
}

/* Rows of a tile when one row is `width` elements. */
static inline int64_t tile_rows(int64_t width) {
    return maximum(1, TILE_ELEMENTS / width);
}

/* Executes `tile` for every run of `length` out of `total`. */
static inline void tiles_run(pool *p, int64_t total, int64_t length, pool_tile *tile, const launch *l) {
    pool_run(p, divide_up(total, length), tile, (void *)l);
}

/* Whether output o adds to what is there. */
static inline bool launch_adds(const launch *l, int o) {
    return (l->accumulate >> o & 1) != 0;
}

#endif
