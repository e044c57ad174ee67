#include "engine/device/cpu/kernels/pack.h"

/* Lanes of the lower and of the upper halves of two vectors, taken in turn. */
#if defined(__AVX512F__)
#define INTERLEAVE_LOW(a, b) __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define INTERLEAVE_HIGH(a, b)                                                                                          \
    __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#elif defined(__AVX2__)
#define INTERLEAVE_LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define INTERLEAVE_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#else
#define INTERLEAVE_LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define INTERLEAVE_HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#endif

/* A square of LANES x LANES. Rows and lanes together are numbered by 2 log2(LANES) bits; interleaving rows i and
 * i + LANES/2 rotates that number by one bit, so after log2(LANES) rounds rows and lanes have changed places. */
static inline void transpose_square(const stored *from, int64_t from_stride, float *to, int64_t to_stride) {
    vector row[LANES], next[LANES];
    for (int i = 0; i < LANES; i++)
        row[i] = stored_load(from + i * from_stride);
    for (int round = 1; round < LANES; round *= 2) {
        for (int i = 0; i < LANES / 2; i++) {
            next[2 * i] = INTERLEAVE_LOW(row[i], row[i + LANES / 2]);
            next[2 * i + 1] = INTERLEAVE_HIGH(row[i], row[i + LANES / 2]);
        }
        for (int i = 0; i < LANES; i++)
            row[i] = next[i];
    }
    for (int i = 0; i < LANES; i++)
        vector_store(to + i * to_stride, row[i]);
}

/* to[j][i] = from[i][j] for i < rows, j < columns */
static void transpose(const stored *from, int64_t from_stride, int64_t rows, int64_t columns, float *to,
                      int64_t to_stride) {
    int64_t whole_rows = rows / LANES * LANES, whole_columns = columns / LANES * LANES;
    for (int64_t i = 0; i < whole_rows; i += LANES)
        for (int64_t j = 0; j < whole_columns; j += LANES)
            transpose_square(from + i * from_stride + j, from_stride, to + j * to_stride + i, to_stride);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = i < whole_rows ? whole_columns : 0; j < columns; j++)
            to[j * to_stride + i] = stored_get(from + i * from_stride + j);
}

void STORED(pack_rows)(const matrix *from, int64_t i, int64_t rows, int64_t k, int64_t depth, float *packed) {
    const stored *data = from->data;
    if (from->transposed) {
        transpose(data + k * from->stride + i, from->stride, depth, rows, packed, ROW_STRIDE);
        return;
    }
    for (int64_t r = 0; r < rows; r++) {
        const stored *row = data + (i + r) * from->stride + k;
        float *to = packed + r * ROW_STRIDE;
        int64_t d = 0;
        for (; d + LANES <= depth; d += LANES)
            vector_store(to + d, stored_load(row + d));
        for (; d < depth; d++)
            to[d] = stored_get(row + d);
    }
}

/* A row of the source at a time, across all panels: the source is read in the order of its addresses. */
static void copy_panels(const stored *from, int64_t stride, int64_t columns, int64_t depth, float *packed) {
    int64_t whole = columns / PANEL, rest = columns % PANEL;
    for (int64_t k = 0; k < depth; k++) {
        const stored *row = from + k * stride;
        float *to = packed + k * PANEL;
        for (int64_t p = 0; p < whole; p++, to += panel_stride(depth)) {
            vector_store(to, stored_load(row + p * PANEL));
            vector_store(to + LANES, stored_load(row + p * PANEL + LANES));
        }
        for (int64_t j = 0; rest > 0 && j < PANEL; j++)
            to[j] = j < rest ? stored_get(row + whole * PANEL + j) : 0;
    }
}

void STORED(pack_panels)(const matrix *from, int64_t i, int64_t columns, int64_t k, int64_t depth, float *packed) {
    const stored *data = from->data;
    if (from->transposed) {
        copy_panels(data + k * from->stride + i, from->stride, columns, depth, packed);
        return;
    }
    for (int64_t first = 0; first < columns; first += PANEL, packed += panel_stride(depth)) {
        int64_t here = minimum(PANEL, columns - first);
        transpose(data + (i + first) * from->stride + k, from->stride, here, depth, packed, PANEL);
        for (int64_t d = 0; here < PANEL && d < depth; d++)
            memset(packed + d * PANEL + here, 0, (size_t)(PANEL - here) * sizeof(float));
    }
}
