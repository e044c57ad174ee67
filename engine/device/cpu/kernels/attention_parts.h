/* What attention's forward and backward share: the shape, and products of packed blocks (microkernel.h). */
#ifndef FSDP_ENGINE_DEVICE_CPU_KERNELS_ATTENTION_PARTS_H
#define FSDP_ENGINE_DEVICE_CPU_KERNELS_ATTENTION_PARTS_H

#include "engine/checked.h"
#include "engine/device/cpu/kernels/exports.h"
#include "engine/device/cpu/kernels/pack.h"

typedef struct attention_shape {
    int64_t sequences, length;      /* tokens are sequences x length */
    int64_t heads, kv_heads, width; /* width of a head */
    int64_t row;                    /* elements of a token's row of qkv */
    int64_t padded;                 /* width, up to whole panels: rows of scratch */
    bool causal;
    float scale;
} attention_shape;

static inline attention_shape attention_shape_of(const launch *l, const operand *qkv) {
    const attributes *options = &l->attributes;
    return (attention_shape){
        .sequences = qkv->shape[0] / options->sequence,
        .length = options->sequence,
        .heads = options->heads,
        .kv_heads = options->kv_heads,
        .width = options->head_width,
        .row = (options->heads + 2 * options->kv_heads) * options->head_width,
        .padded = round_up(options->head_width, PANEL),
        .causal = options->causal,
        .scale = (float)options->scale,
    };
}

/* One head of one sequence: `first` elements into rows of `row` elements. i is the token, k the place in the head. */
static inline matrix head_of(const stored *data, const attention_shape *s, int64_t sequence, int64_t row,
                             int64_t first) {
    return (matrix){data + sequence * s->length * row + first, row, false};
}

/* The same elements with i and k in each other's place. */
static inline matrix transposed(matrix m) {
    m.transposed = !m.transposed;
    return m;
}

/* A head may be wider than DEPTH: its rows and panels are packed in layers of DEPTH, one behind the other. */
static inline int64_t layers_of(const attention_shape *s) {
    return divide_up(s->width, DEPTH);
}

static inline int64_t layer_depth(const attention_shape *s, int64_t layer) {
    return minimum(DEPTH, s->width - layer * DEPTH);
}

/* Floats of a layer of panels. */
static inline int64_t panels_layer(const attention_shape *s, int64_t columns) {
    return divide_up(columns, PANEL) * panel_stride(layer_depth(s, 0));
}

static inline void pack_head_rows(const attention_shape *s, const matrix *from, int64_t i, int64_t rows,
                                  int64_t capacity, float *packed) {
    for (int64_t layer = 0; layer < layers_of(s); layer++)
        STORED(pack_rows)(from, i, rows, layer * DEPTH, layer_depth(s, layer), packed + layer * capacity * ROW_STRIDE);
}

static inline void pack_head_panels(const attention_shape *s, const matrix *from, int64_t i, int64_t columns,
                                    int64_t capacity, float *packed) {
    for (int64_t layer = 0; layer < layers_of(s); layer++)
        STORED(pack_panels)
        (from, i, columns, layer * DEPTH, layer_depth(s, layer), packed + layer * panels_layer(s, capacity));
}

/* c[height][columns] (+)= rows x panels, whole panels wide. `between`: elements from panel to panel. */
static inline void multiply_group(int height, int64_t columns, int64_t depth, const float *rows, const float *panels,
                                  int64_t between, float *c, int64_t stride, bool add) {
    for (int64_t j = 0; j < columns; j += PANEL, panels += between) {
        destination to = {.c = c + j, .stride = stride, .columns = PANEL, .add = add};
        KERNEL(microkernel)(height, depth, rows, panels, &to, NULL);
    }
}

/* The same with the head's width as inner index, on operands that pack_head_rows and pack_head_panels made, from
 * column `first` (of a panel) on. */
static inline void multiply_head(const attention_shape *s, int height, int64_t first, int64_t columns,
                                 const float *rows, int64_t row_capacity, const float *panels, int64_t panel_capacity,
                                 float *c) {
    for (int64_t layer = 0; layer < layers_of(s); layer++) {
        int64_t depth = layer_depth(s, layer), between = panel_stride(depth);
        multiply_group(height, columns, depth, rows + layer * row_capacity * ROW_STRIDE,
                       panels + layer * panels_layer(s, panel_capacity) + first / PANEL * between, between, c,
                       ROW_STRIDE, layer > 0);
    }
}

/* Rows are worked on in groups of up to HEIGHT, of heights that differ by one at most. */
typedef struct row_group {
    int64_t first;
    int height;
} row_group;

static inline int64_t row_groups(int64_t rows) {
    return divide_up(rows, HEIGHT);
}

static inline row_group row_group_of(int64_t rows, int64_t group) {
    int64_t groups = row_groups(rows), base = rows / groups, longer = rows % groups;
    return (row_group){group * base + minimum(group, longer), (int)(base + (group < longer))};
}

/* A scratch area that is being divided; start NULL: only counted. */
typedef struct area {
    float *start;
    int64_t floats;
} area;

static inline float *take(area *from, int64_t floats) {
    float *taken = from->start == NULL ? NULL : from->start + from->floats;
    from->floats += round_up(floats, 16); /* whole cache lines */
    return taken;
}

#endif
