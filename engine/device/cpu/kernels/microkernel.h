/* The inner loop of every matrix product: a few rows times a panel of two vectors of columns, summed over `depth`
 * values of the inner index in registers.
 *
 *   rows    [height][ROW_STRIDE]  inner index contiguous
 *   panel   [depth][PANEL]        columns contiguous, 64-byte aligned
 *
 * Each sum is one chain of multiply-adds in ascending order of the inner index, whatever the height: a result's bits
 * depend on where the inner index is cut, never on how rows and columns are. */
#ifndef FSDP_ENGINE_DEVICE_CPU_KERNELS_MICROKERNEL_H
#define FSDP_ENGINE_DEVICE_CPU_KERNELS_MICROKERNEL_H

#include "engine/device/cpu/kernels.h"
#include "engine/device/cpu/kernels/vector_math.h"

#include <stdbool.h>

#if defined(__AVX512F__) || defined(__aarch64__)
#define HEIGHT 14 /* 28 sums, two columns and a row value: what 32 registers hold */
#else
#define HEIGHT 6 /* 12 sums: 16 registers */
#endif

enum {
    PANEL = 2 * LANES,
    DEPTH = 384,             /* most values of the inner index at once */
    ROW_STRIDE = DEPTH + 16, /* elements from one packed row to the next */
};

/* Elements from one packed panel to the next. Both strides are odd numbers of cache lines or nearly so: rows and panels
 * that are used together do not compete for the same sets of a cache. */
static inline int64_t panel_stride(int64_t depth) {
    return (depth | 1) * PANEL;
}

/* Where the sums go. bias: PANEL values or as many as there are columns; NULL: none. */
typedef struct destination {
    float *c;
    int64_t stride;  /* elements from row to row */
    int64_t columns; /* 1 .. PANEL */
    bool add;        /* to what is there */
    const float *bias;
} destination;

/* Cache lines to ask for meanwhile: lines first .. first + count of a matrix whose rows have `per_row` of them. They
 * are spread over the inner loop: asked for all at once, more than a core can wait for, they would stop it. */
typedef struct fetch {
    const char *data;
    int64_t stride; /* bytes from row to row */
    uint32_t per_row, first, count;
} fetch;

enum { LINE = 64 }; /* bytes of a cache line */

static inline const char *line_address(const fetch *f, uint32_t line) {
    return f->data + line / f->per_row * f->stride + line % f->per_row * LINE;
}

static inline __attribute__((always_inline)) void store_whole(int height, vector sum[HEIGHT][2],
                                                              const destination *to) {
    for (int r = 0; r < height; r++) {
        for (int j = 0; j < 2; j++) {
            float *c = to->c + r * to->stride + j * LANES;
            vector value = to->add ? vector_load(c) + sum[r][j] : sum[r][j];
            vector_store(c, to->bias != NULL ? value + vector_load(to->bias + j * LANES) : value);
        }
    }
}

static inline void store_part(int height, vector sum[HEIGHT][2], const destination *to) {
    for (int r = 0; r < height; r++) {
        float values[PANEL], *c = to->c + r * to->stride;
        vector_store(values, sum[r][0]);
        vector_store(values + LANES, sum[r][1]);
        for (int64_t j = 0; j < to->columns; j++) {
            float value = to->add ? c[j] + values[j] : values[j];
            c[j] = to->bias != NULL ? value + to->bias[j] : value;
        }
    }
}

static inline __attribute__((always_inline)) void multiply_rows(int height, int64_t depth, const float *rows,
                                                                const float *panel, const destination *to,
                                                                bool fetching, const fetch *ahead) {
    vector sum[HEIGHT][2];
    for (int r = 0; r < height; r++) {
        sum[r][0] = sum[r][1] = (vector){0};
        __builtin_prefetch(to->c + r * to->stride, 1);
        __builtin_prefetch(to->c + r * to->stride + LANES, 1);
    }
    const uint32_t one = 1 << 16; /* lines are counted in 65536ths */
    uint32_t line = fetching ? ahead->first * one : 0, rate = fetching ? ahead->count * one / (uint32_t)depth : 0;
    for (int64_t k = 0; k < depth; k++, line += rate) {
        vector first = vector_load(panel + k * PANEL), second = vector_load(panel + k * PANEL + LANES);
        if (fetching)
            __builtin_prefetch(line_address(ahead, line / one), 0, 2); /* gcc drops a function that only does this */
        for (int r = 0; r < height; r++) {
            vector row = vector_set(rows[r * ROW_STRIDE + k]);
            sum[r][0] += row * first;
            sum[r][1] += row * second;
        }
    }
    if (to->columns == PANEL)
        store_whole(height, sum, to);
    else
        store_part(height, sum, to);
}

/* height: 1 .. HEIGHT; depth: 0 .. DEPTH; ahead: NULL, or fewer than 65536 lines in all (then depth > 0) */
void KERNEL(microkernel)(int height, int64_t depth, const float *rows, const float *panel, const destination *to,
                         const fetch *ahead);

#endif
