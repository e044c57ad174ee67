/* column_sum: bias gradients, bound by the reading of x. */
#include "engine/device/cpu/kernels/exports.h"
#include "engine/device/cpu/kernels/partial_sums.h"

enum { ROWS_AT_ONCE = 4 };

/* Adds ROWS_AT_ONCE rows to `sums` while these are in the first-level cache. */
static void add_rows(const stored *rows, int64_t width, float *sums) {
    for (int64_t c = 0; c < width; c += LANES) {
        vector total = {0};
        for (int64_t i = 0; i < ROWS_AT_ONCE; i++)
            total += stored_load_up_to(rows + i * width + c, width - c, 0);
        vector_store_up_to(sums + c, width - c, vector_load_up_to(sums + c, width - c, 0) + total);
    }
}

static void add_row(const stored *row, int64_t width, float *sums) {
    for (int64_t c = 0; c < width; c++)
        sums[c] += stored_get(row + c);
}

static void rows_tile(void *context, int64_t tile, int thread) {
    (void)thread;
    const launch *l = context;
    int64_t rows = l->in[0].shape[0], width = l->in[0].shape[1];
    const stored *x = l->in[0].data;
    float *sums = (float *)l->workspace + tile * width;
    tile_range range = tile_range_of(tile, partial_rows(rows), rows);
    memset(sums, 0, (size_t)width * sizeof *sums);
    int64_t row = range.begin;
    for (; row + ROWS_AT_ONCE <= range.end; row += ROWS_AT_ONCE)
        add_rows(x + row * width, width, sums);
    for (; row < range.end; row++)
        add_row(x + row * width, width, sums);
}

enum { TILE_COLUMNS = 256 };

static void columns_tile(void *context, int64_t tile, int thread) {
    (void)thread;
    const launch *l = context;
    int64_t rows = l->in[0].shape[0], width = l->in[0].shape[1];
    partial_sums_add(l->workspace, partial_tiles(rows), width, tile_range_of(tile, TILE_COLUMNS, width),
                     launch_adds(l, 0), &l->out[0]);
}

size_t STORED(column_sum_workspace)(const launch *l, int threads) {
    (void)threads;
    return (size_t)(partial_tiles(l->in[0].shape[0]) * l->in[0].shape[1]) * sizeof(float);
}

void STORED(column_sum_run)(pool *p, const launch *l) {
    tiles_run(p, l->in[0].shape[0], partial_rows(l->in[0].shape[0]), rows_tile, l);
    tiles_run(p, l->in[0].shape[1], TILE_COLUMNS, columns_tile, l);
}
