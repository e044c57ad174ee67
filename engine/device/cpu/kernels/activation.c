/* gelu, swiglu and their backward, elementwise. (1 + tanh u) / 2 is the sigmoid of 2u, which keeps its relative
 * accuracy where 1 + tanh u would cancel. */
#include "engine/device/cpu/kernels/exports.h"
#include "engine/device/cpu/kernels/storage.h"
#include "engine/device/cpu/kernels/tiles.h"

/* 2u = x (scale + cubic x^2), from u = sqrt(2/pi) (x + 0.044715 x^3). */
static const float gelu_scale = 1.5957691216f, gelu_cubic = 0.0713548163f;

static void gelu_tile(void *context, int64_t tile, int thread) {
    (void)thread;
    const launch *l = context;
    const stored *in = l->in[0].data;
    stored *out = l->out[0].data;
    tile_range range = tile_range_of(tile, TILE_ELEMENTS, operand_count(&l->in[0]));
    for (int64_t i = range.begin; i < range.end; i += LANES) {
        int64_t count = range.end - i;
        vector x = stored_load_up_to(in + i, count, 0);
        stored_store_up_to(out + i, count, x * vector_sigmoid(x * (gelu_scale + gelu_cubic * x * x)));
    }
}

void STORED(gelu_run)(pool *p, const launch *l) {
    tiles_run(p, operand_count(&l->in[0]), TILE_ELEMENTS, gelu_tile, l);
}

static void gelu_backward_tile(void *context, int64_t tile, int thread) {
    (void)thread;
    const launch *l = context;
    const stored *dout = l->in[0].data, *in = l->in[1].data;
    stored *dx = l->out[0].data;
    tile_range range = tile_range_of(tile, TILE_ELEMENTS, operand_count(&l->in[0]));
    for (int64_t i = range.begin; i < range.end; i += LANES) {
        int64_t count = range.end - i;
        vector x = stored_load_up_to(in + i, count, 0), square = x * x;
        vector s = vector_sigmoid(x * (gelu_scale + gelu_cubic * square));
        vector slope = s + x * (gelu_scale + 3 * gelu_cubic * square) * s * (1.0f - s);
        stored_store_up_to(dx + i, count, stored_load_up_to(dout + i, count, 0) * slope);
    }
}

void STORED(gelu_backward_run)(pool *p, const launch *l) {
    tiles_run(p, operand_count(&l->in[0]), TILE_ELEMENTS, gelu_backward_tile, l);
}

static void swiglu_tile(void *context, int64_t tile, int thread) {
    (void)thread;
    const launch *l = context;
    int64_t rows = l->out[0].shape[0], width = l->out[0].shape[1];
    tile_range range = tile_range_of(tile, tile_rows(width), rows);
    for (int64_t row = range.begin; row < range.end; row++) {
        const stored *gates = (const stored *)l->in[0].data + 2 * row * width, *ups = gates + width;
        stored *out = (stored *)l->out[0].data + row * width;
        for (int64_t i = 0; i < width; i += LANES) {
            vector gate = stored_load_up_to(gates + i, width - i, 0), up = stored_load_up_to(ups + i, width - i, 0);
            stored_store_up_to(out + i, width - i, gate * vector_sigmoid(gate) * up);
        }
    }
}

void STORED(swiglu_run)(pool *p, const launch *l) {
    tiles_run(p, l->out[0].shape[0], tile_rows(l->out[0].shape[1]), swiglu_tile, l);
}

static void swiglu_backward_tile(void *context, int64_t tile, int thread) {
    (void)thread;
    const launch *l = context;
    int64_t rows = l->in[0].shape[0], width = l->in[0].shape[1];
    tile_range range = tile_range_of(tile, tile_rows(width), rows);
    for (int64_t row = range.begin; row < range.end; row++) {
        const stored *dout = (const stored *)l->in[0].data + row * width;
        const stored *gates = (const stored *)l->in[1].data + 2 * row * width, *ups = gates + width;
        stored *dgates = (stored *)l->out[0].data + 2 * row * width, *dups = dgates + width;
        for (int64_t i = 0; i < width; i += LANES) {
            vector gate = stored_load_up_to(gates + i, width - i, 0), up = stored_load_up_to(ups + i, width - i, 0);
            vector d = stored_load_up_to(dout + i, width - i, 0), s = vector_sigmoid(gate);
            stored_store_up_to(dgates + i, width - i, d * up * s * (1.0f + gate * (1.0f - s)));
            stored_store_up_to(dups + i, width - i, d * gate * s);
        }
    }
}

void STORED(swiglu_backward_run)(pool *p, const launch *l) {
    tiles_run(p, l->in[0].shape[0], tile_rows(l->in[0].shape[1]), swiglu_backward_tile, l);
}
