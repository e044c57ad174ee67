/* cast and fill: between any two storages, through a block of fp32 that stays in the first-level cache. */
#include "engine/device/cpu/kernels/exports.h"
#include "engine/device/cpu/kernels/storage.h"
#include "engine/device/cpu/kernels/tiles.h"

enum { BLOCK = 1024 };

static void cast_tile(void *context, int64_t tile, int thread) {
    (void)thread;
    const launch *l = context;
    float block[BLOCK];
    tile_range range = tile_range_of(tile, TILE_ELEMENTS, operand_count(&l->out[0]));
    for (int64_t i = range.begin; i < range.end; i += BLOCK) {
        int64_t count = minimum(BLOCK, range.end - i);
        widen_run(l->in[0].type, l->in[0].data, i, count, block);
        narrow_run(l->out[0].type, block, count, l->out[0].data, i);
    }
}

void KERNEL(cast_run)(pool *p, const launch *l) {
    tiles_run(p, operand_count(&l->out[0]), TILE_ELEMENTS, cast_tile, l);
}

static void fill_tile(void *context, int64_t tile, int thread) {
    (void)thread;
    const launch *l = context;
    float block[BLOCK];
    tile_range range = tile_range_of(tile, TILE_ELEMENTS, operand_count(&l->out[0]));
    for (int64_t i = 0; i < BLOCK; i++)
        block[i] = (float)l->attributes.value;
    for (int64_t i = range.begin; i < range.end; i += BLOCK)
        narrow_run(l->out[0].type, block, minimum(BLOCK, range.end - i), l->out[0].data, i);
}

void KERNEL(fill_run)(pool *p, const launch *l) {
    tiles_run(p, operand_count(&l->out[0]), TILE_ELEMENTS, fill_tile, l);
}
