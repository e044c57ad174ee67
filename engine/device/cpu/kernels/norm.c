/* norm and norm_backward, a row at a time: a row stays in the first-level cache over its passes. */
#include "engine/device/cpu/kernels/exports.h"
#include "engine/device/cpu/kernels/partial_sums.h"

/* Sums of a row keep this many vectors apart, for speed and for shorter chains of roundings. */
enum { CHAINS = 4 };

static float sum_chains(const vector chains[CHAINS]) {
    return vector_sum_lanes((chains[0] + chains[1]) + (chains[2] + chains[3]));
}

static float row_sum(const stored *row, int64_t width) {
    vector chains[CHAINS] = {{0}};
    int64_t c = 0;
    for (; c + CHAINS * LANES <= width; c += CHAINS * LANES)
        for (int i = 0; i < CHAINS; i++)
            chains[i] += stored_load(row + c + i * LANES);
    for (int i = 0; c < width; c += LANES, i++)
        chains[i] += stored_load_up_to(row + c, width - c, 0);
    return sum_chains(chains);
}

/* Sum of (row - mean)^2. */
static float row_squares(const stored *row, float mean, int64_t width) {
    vector chains[CHAINS] = {{0}};
    int64_t c = 0;
    for (; c + CHAINS * LANES <= width; c += CHAINS * LANES)
        for (int i = 0; i < CHAINS; i++) {
            vector difference = stored_load(row + c + i * LANES) - mean;
            chains[i] += difference * difference;
        }
    for (int i = 0; c < width; c += LANES, i++) {
        vector difference = stored_load_up_to(row + c, width - c, mean) - mean;
        chains[i] += difference * difference;
    }
    return sum_chains(chains);
}

static void row_add(const stored *a, const stored *b, int64_t width, stored *sum) {
    for (int64_t c = 0; c < width; c += LANES)
        stored_store_up_to(sum + c, width - c,
                           stored_load_up_to(a + c, width - c, 0) + stored_load_up_to(b + c, width - c, 0));
}

static void row_normalise(const stored *row, float mean, float rstd, const stored *weight, const stored *bias,
                          int64_t width, stored *normed) {
    for (int64_t c = 0; c < width; c += LANES) {
        vector value = (stored_load_up_to(row + c, width - c, 0) - mean) * rstd;
        vector shift = bias != NULL ? stored_load_up_to(bias + c, width - c, 0) : (vector){0};
        stored_store_up_to(normed + c, width - c, value * stored_load_up_to(weight + c, width - c, 0) + shift);
    }
}

static void norm_tile(void *context, int64_t tile, int thread) {
    (void)thread;
    const launch *l = context;
    const stored *residual = l->in[1].data;
    int64_t rows = l->in[0].shape[0], width = l->in[0].shape[1];
    tile_range range = tile_range_of(tile, tile_rows(width), rows);
    for (int64_t row = range.begin; row < range.end; row++) {
        const stored *s = (const stored *)l->in[0].data + row * width;
        if (residual != NULL) {
            stored *sum = (stored *)l->out[1].data + row * width;
            row_add(s, residual + row * width, width, sum);
            s = sum;
        }
        float mean = l->attributes.norm == NORM_LAYER ? row_sum(s, width) / (float)width : 0;
        double variance = (double)row_squares(s, mean, width) / (double)width;
        float rstd = (float)(1 / sqrt(variance + l->attributes.epsilon));
        row_normalise(s, mean, rstd, l->in[2].data, l->in[3].data, width, (stored *)l->out[0].data + row * width);
        float *statistics = (float *)l->out[2].data + 2 * row;
        statistics[0] = mean;
        statistics[1] = rstd;
    }
}

void STORED(norm_run)(pool *p, const launch *l) {
    tiles_run(p, l->in[0].shape[0], tile_rows(l->in[0].shape[1]), norm_tile, l);
}

/* What one row gives to its own gradient: means of d weight, and of that times the normalised value. */
typedef struct row_means {
    float direct, scaled;
} row_means;

/* First pass over a row: its means, and what it adds to the sums for weight and bias (bias_sums may be NULL). */
static row_means row_reduce(const stored *dnormed, const stored *s, float mean, float rstd, const stored *weight,
                            int64_t width, float *weight_sums, float *bias_sums) {
    vector direct = {0}, scaled = {0};
    for (int64_t c = 0; c < width; c += LANES) {
        int64_t count = width - c;
        vector d = stored_load_up_to(dnormed + c, count, 0);
        vector value = (stored_load_up_to(s + c, count, 0) - mean) * rstd;
        vector weighted = d * stored_load_up_to(weight + c, count, 0);
        direct += weighted;
        scaled += weighted * value;
        vector_store_up_to(weight_sums + c, count, vector_load_up_to(weight_sums + c, count, 0) + d * value);
        if (bias_sums != NULL)
            vector_store_up_to(bias_sums + c, count, vector_load_up_to(bias_sums + c, count, 0) + d);
    }
    return (row_means){vector_sum_lanes(direct) / (float)width, vector_sum_lanes(scaled) / (float)width};
}

/* Second pass: dsum, which may take the bytes of dnormed. */
static void row_gradient(const stored *dnormed, const stored *dsum_in, const stored *s, float mean, float rstd,
                         const stored *weight, row_means means, int64_t width, stored *dsum) {
    for (int64_t c = 0; c < width; c += LANES) {
        int64_t count = width - c;
        vector weighted = stored_load_up_to(dnormed + c, count, 0) * stored_load_up_to(weight + c, count, 0);
        vector value = (stored_load_up_to(s + c, count, 0) - mean) * rstd;
        vector d = (weighted - means.direct - value * means.scaled) * rstd;
        stored_store_up_to(dsum + c, count, dsum_in != NULL ? d + stored_load_up_to(dsum_in + c, count, 0) : d);
    }
}

static void norm_backward_tile(void *context, int64_t tile, int thread) {
    (void)thread;
    const launch *l = context;
    const stored *dnormed = l->in[0].data, *dsum_in = l->in[1].data, *s = l->in[2].data, *weight = l->in[4].data;
    const float *statistics = l->in[3].data;
    int64_t rows = l->in[0].shape[0], width = l->in[0].shape[1], tiles = partial_tiles(rows);
    stored *dsum = l->out[0].data;
    float *weight_sums = (float *)l->workspace + tile * width;
    float *bias_sums = l->out[2].data != NULL ? weight_sums + tiles * width : NULL;
    memset(weight_sums, 0, (size_t)width * sizeof *weight_sums);
    if (bias_sums != NULL)
        memset(bias_sums, 0, (size_t)width * sizeof *bias_sums);
    tile_range range = tile_range_of(tile, partial_rows(rows), rows);
    for (int64_t row = range.begin, at = row * width; row < range.end; row++, at += width) {
        float mean = statistics[2 * row], rstd = statistics[2 * row + 1];
        row_means means = row_reduce(dnormed + at, s + at, mean, rstd, weight, width, weight_sums, bias_sums);
        if (l->attributes.norm == NORM_RMS)
            means.direct = 0;
        row_gradient(dnormed + at, dsum_in != NULL ? dsum_in + at : NULL, s + at, mean, rstd, weight, means, width,
                     dsum + at);
    }
}

enum { TILE_COLUMNS = 256 };

static void parameter_tile(void *context, int64_t tile, int thread) {
    (void)thread;
    const launch *l = context;
    int64_t width = l->in[0].shape[1], tiles = partial_tiles(l->in[0].shape[0]);
    const float *weight_sums = l->workspace, *bias_sums = weight_sums + tiles * width;
    tile_range columns = tile_range_of(tile, TILE_COLUMNS, width);
    partial_sums_add(weight_sums, tiles, width, columns, launch_adds(l, 1), &l->out[1]);
    if (l->out[2].data != NULL)
        partial_sums_add(bias_sums, tiles, width, columns, launch_adds(l, 2), &l->out[2]);
}

size_t STORED(norm_backward_workspace)(const launch *l, int threads) {
    (void)threads;
    int64_t sums = l->out[2].data != NULL ? 2 : 1; /* for weight, for bias */
    return (size_t)(sums * partial_tiles(l->in[0].shape[0]) * l->in[0].shape[1]) * sizeof(float);
}

void STORED(norm_backward_run)(pool *p, const launch *l) {
    tiles_run(p, l->in[0].shape[0], partial_rows(l->in[0].shape[0]), norm_backward_tile, l);
    tiles_run(p, l->in[0].shape[1], TILE_COLUMNS, parameter_tile, l);
}
