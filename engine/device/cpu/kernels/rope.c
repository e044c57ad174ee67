/* rope: rotates query and key heads, copies values. */
#include "engine/device/cpu/kernels/exports.h"
#include "engine/device/cpu/kernels/storage.h"
#include "engine/device/cpu/kernels/tiles.h"

/* One head: pairs (j, j + half). `sign` is -1 for the inverse. */
static void rotate(const stored *from, const float *cosine, const float *sine, float sign, int64_t half, stored *to) {
    for (int64_t j = 0; j < half; j += LANES) {
        int64_t count = half - j;
        vector first = stored_load_up_to(from + j, count, 0), second = stored_load_up_to(from + half + j, count, 0);
        vector c = vector_load_up_to(cosine + j, count, 0), s = sign * vector_load_up_to(sine + j, count, 0);
        stored_store_up_to(to + j, count, first * c - second * s);
        stored_store_up_to(to + half + j, count, second * c + first * s);
    }
}

static void rope_tile(void *context, int64_t tile, int thread) {
    (void)thread;
    const launch *l = context;
    const attributes *a = &l->attributes;
    int64_t rows = l->in[0].shape[0], width = l->in[0].shape[1], half = a->head_width / 2;
    int64_t rotated = (a->heads + a->kv_heads) * a->head_width;
    tile_range range = tile_range_of(tile, tile_rows(width), rows);
    for (int64_t row = range.begin; row < range.end; row++) {
        const stored *from = (const stored *)l->in[0].data + row * width;
        const float *cosine = (const float *)l->in[1].data + row % a->sequence * half;
        const float *sine = (const float *)l->in[2].data + row % a->sequence * half;
        stored *to = (stored *)l->out[0].data + row * width;
        for (int64_t at = 0; at < rotated; at += a->head_width)
            rotate(from + at, cosine, sine, a->inverse ? -1.0f : 1.0f, half, to + at);
        if (to != from)
            memcpy(to + rotated, from + rotated, (size_t)(width - rotated) * sizeof *to);
    }
}

void STORED(rope_run)(pool *p, const launch *l) {
    tiles_run(p, l->in[0].shape[0], tile_rows(l->in[0].shape[1]), rope_tile, l);
}
