/* add. */
#include "engine/device/cpu/kernels/exports.h"
#include "engine/device/cpu/kernels/storage.h"
#include "engine/device/cpu/kernels/tiles.h"

static void add_tile(void *context, int64_t tile, int thread) {
    (void)thread;
    const launch *l = context;
    const stored *a = l->in[0].data, *b = l->in[1].data;
    stored *out = l->out[0].data;
    tile_range range = tile_range_of(tile, TILE_ELEMENTS, operand_count(&l->out[0]));
    for (int64_t i = range.begin; i < range.end; i += LANES) {
        int64_t count = range.end - i;
        stored_store_up_to(out + i, count, stored_load_up_to(a + i, count, 0) + stored_load_up_to(b + i, count, 0));
    }
}

void STORED(add_run)(pool *p, const launch *l) {
    tiles_run(p, operand_count(&l->out[0]), TILE_ELEMENTS, add_tile, l);
}
