/* c = op(a) op(b) + bias, single precision.
 *
 * A block of b is packed into panels and a block of a into rows (pack.h); the microkernel multiplies them. The inner
 * index is cut into blocks that depend on k alone, so a result's bits depend neither on the number of threads nor on
 * the other rows and columns of the product: the same token gives the same bits in a batch of any size. */
#include "engine/checked.h"
#include "engine/device/cpu/kernels/exports.h"
#include "engine/device/cpu/kernels/pack.h"

enum {
    BLOCK_COLUMNS = 384,                  /* of b at once; with DEPTH about half of a second-level cache */
    BLOCK_ROWS = 112 / HEIGHT * HEIGHT,   /* of a at once */
    PANEL_FLOATS = BLOCK_COLUMNS * (DEPTH | 1), /* scratch of one thread */
    ROW_FLOATS = BLOCK_ROWS * ROW_STRIDE,
    SCRATCH_FLOATS = PANEL_FLOATS + ROW_FLOATS,
};

typedef struct product {
    int64_t m, n, k;
    matrix a, b; /* b's element (j, i) is op(b)[i][j]: both sum over their second index */
    float *c;
    const float *bias;
    bool accumulate;
    int64_t depth;                   /* of a block of the inner index */
    int64_t tile_rows, tile_columns; /* of c, computed by one thread */
    int64_t tiles_down, tiles_across;
    float *scratch;
} product;

static void product_shape(product *p, const launch *l) {
    const attributes *options = &l->attributes;
    p->m = l->out[0].shape[0];
    p->n = l->out[0].shape[1];
    p->k = l->in[0].shape[options->transpose_a ? 0 : 1];
    int64_t blocks = divide_up(p->k, DEPTH);
    p->depth = minimum(DEPTH, round_up(divide_up(p->k, blocks), 16));
}

/* Time of a tile in multiply-adds per unit of k: packing an element costs about as much as ten of them. */
static double tile_cost(int64_t rows, int64_t columns) {
    double packed_rows = (double)(rows * divide_up(columns, BLOCK_COLUMNS));
    return (double)rows * (double)columns + 10.0 * (packed_rows + (double)columns);
}

/* Chooses the tiles that keep all threads busy with the least packing done twice. */
static void choose_tiles(product *p, int threads) {
    double best = 0;
    int64_t most = threads == 1 ? 1 : 8 * (int64_t)threads;
    for (int64_t down = 1; down <= most; down++) {
        for (int64_t across = 1; down * across <= most; across++) {
            int64_t rows = round_up(divide_up(p->m, down), HEIGHT), columns = round_up(divide_up(p->n, across), PANEL);
            int64_t tiles_down = divide_up(p->m, rows), tiles_across = divide_up(p->n, columns);
            double cost = (double)divide_up(tiles_down * tiles_across, threads) *
                          tile_cost(minimum(rows, p->m), minimum(columns, p->n));
            if (best > 0 && cost >= best)
                continue;
            best = cost;
            p->tile_rows = rows;
            p->tile_columns = columns;
            p->tiles_down = tiles_down;
            p->tiles_across = tiles_across;
        }
    }
}

/* Heights that differ by one at most: a last group of one or two rows would run far below the full speed. */
static int group_height(int64_t rows, int64_t groups, int64_t group) {
    return (int)(rows / groups + (group < rows % groups));
}

/* A block of c: rows and columns of it, and the part of the inner index that is added now. */
typedef struct block {
    int64_t row, rows, column, columns, k, depth;
} block;

/* Multiplies packed rows and packed panels. Meanwhile it fetches parts of what will be packed next: without that a
 * third of the time of packing is spent waiting for memory. */
static void multiply_block(const product *p, const block *b, const float *rows, const float *panels,
                           const region *next_rows, const region *next_panels, int64_t part, int64_t parts) {
    int64_t groups = divide_up(b->rows, HEIGHT), columns = divide_up(b->columns, PANEL), row = b->row;
    for (int64_t group = 0; group < groups; group++) {
        int height = group_height(b->rows, groups, group);
        for (int64_t j = 0; j < columns; j++) {
            int64_t column = b->column + j * PANEL, call = group * columns + j, calls = groups * columns;
            destination to = {.c = p->c + row * p->n + column,
                              .stride = p->n,
                              .columns = minimum(PANEL, b->column + b->columns - column),
                              .add = p->accumulate || b->k > 0,
                              .bias = p->bias != NULL && b->k + b->depth == p->k ? p->bias + column : NULL};
            region_prefetch(next_rows, call, calls);
            region_prefetch(next_panels, part * calls + call, parts * calls);
            KERNEL(microkernel)(height, b->depth, rows, panels + j * panel_stride(b->depth), &to);
        }
        row += height;
        rows += height * ROW_STRIDE;
    }
}

/* All rows of a tile times one block of panels. */
static void multiply_rows_of_tile(const product *p, block *b, int64_t first_row, int64_t end_row,
                                  const region *next_panels, const float *panels, float *rows) {
    int64_t parts = divide_up(end_row - first_row, BLOCK_ROWS);
    for (int64_t part = 0; part < parts; part++) {
        b->row = first_row + part * BLOCK_ROWS;
        b->rows = minimum(BLOCK_ROWS, end_row - b->row);
        int64_t next = b->row + b->rows;
        region next_rows = matrix_region(&p->a, next, minimum(BLOCK_ROWS, end_row - next), b->k, b->depth);
        KERNEL(pack_rows)(&p->a, b->row, b->rows, b->k, b->depth, rows);
        multiply_block(p, b, rows, panels, &next_rows, next_panels, part, parts);
    }
}

/* What pack_panels will read after block b; no rows when b is the tile's last. */
static region next_panels(const product *p, const block *b, int64_t end_column) {
    int64_t k = b->k + b->depth, column = b->column;
    if (k == p->k) {
        k = 0;
        column += b->columns;
    }
    return matrix_region(&p->b, column, minimum(BLOCK_COLUMNS, end_column - column), k, minimum(p->depth, p->k - k));
}

static void multiply_tile(void *context, int64_t tile, int thread) {
    const product *p = context;
    float *panels = p->scratch + (int64_t)thread * SCRATCH_FLOATS, *rows = panels + PANEL_FLOATS;
    int64_t first_row = tile / p->tiles_across * p->tile_rows, end_row = minimum(first_row + p->tile_rows, p->m);
    int64_t first_column = tile % p->tiles_across * p->tile_columns;
    int64_t end_column = minimum(first_column + p->tile_columns, p->n);
    block b = {0};
    for (b.column = first_column; b.column < end_column; b.column += BLOCK_COLUMNS) {
        b.columns = minimum(BLOCK_COLUMNS, end_column - b.column);
        for (b.k = 0; b.k < p->k; b.k += p->depth) {
            b.depth = minimum(p->depth, p->k - b.k);
            region next = next_panels(p, &b, end_column);
            KERNEL(pack_panels)(&p->b, b.column, b.columns, b.k, b.depth, panels);
            multiply_rows_of_tile(p, &b, first_row, end_row, &next, panels, rows);
        }
    }
}

size_t KERNEL(matmul_workspace)(const launch *l, int threads) {
    (void)l;
    return (size_t)threads * SCRATCH_FLOATS * sizeof(float);
}

void KERNEL(matmul_run)(pool *threads, const launch *l) {
    const attributes *options = &l->attributes;
    product p = {.c = l->out[0].data, .bias = l->in[2].data, .accumulate = l->accumulate & 1, .scratch = l->workspace};
    product_shape(&p, l);
    p.a = (matrix){l->in[0].data, options->transpose_a ? p.m : p.k, options->transpose_a};
    p.b = (matrix){l->in[1].data, options->transpose_b ? p.k : p.n, !options->transpose_b};
    choose_tiles(&p, pool_threads(threads));
    pool_run(threads, p.tiles_down * p.tiles_across, multiply_tile, &p);
}
