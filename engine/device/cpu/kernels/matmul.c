/* c = op(a) op(b) + bias, multiplied and summed in fp32 whatever the operands are stored as: packing widens them.
 *
 * A block of b is packed into panels and a block of a into rows (pack.h); the microkernel multiplies them. The inner
 * index is cut into blocks that depend on k alone, so a result's bits depend neither on the number of threads nor on
 * the other rows and columns of the product: the same token gives the same bits in a batch of any size.
 *
 * Measured by bench/matmul.c (AVX-512, one core, width 384, vocabulary 50257; 1.00 is dnnl_sgemm's best cube): the
 * blocks' products 0.94 to 0.98; the head's three products with 128 rows 0.84 to 0.87, with 256 rows 0.89 to 0.91, with
 * 512 rows 0.89 to 0.94. dnnl_sgemm itself: 0.62 to 0.95, 0.78 to 0.97 and 0.78 to 0.99, the input gradient being its
 * best and the weight gradient its worst. So 256 rows of logits at a time cost little speed, and 51 MB. */
#include "engine/checked.h"
#include "engine/device/cpu/kernels/exports.h"
#include "engine/device/cpu/kernels/pack.h"

enum {
    BLOCK_COLUMNS = 384,                        /* of b at once; with DEPTH about half of a second-level cache */
    BLOCK_ROWS = 112 / HEIGHT * HEIGHT,         /* of a at once */
    PANEL_FLOATS = BLOCK_COLUMNS * (DEPTH | 1), /* scratch of one thread */
    ROW_FLOATS = BLOCK_ROWS * ROW_STRIDE,
    SUM_ROWS = 8 * BLOCK_ROWS, /* of sums that are kept apart; more do not stay in a second-level cache */
    SUM_FLOATS = SUM_ROWS * BLOCK_COLUMNS,
};

typedef struct product {
    int64_t m, n, k;
    matrix a, b; /* b's element (j, i) is op(b)[i][j]: both sum over their second index */
    const operand *c;
    const stored *bias;
    bool accumulate;
    bool apart;                      /* sums are not made in c, which has too few bits for them, but in scratch */
    int64_t depth;                   /* of a block of the inner index */
    int64_t tile_rows, tile_columns; /* of c, computed by one thread */
    int64_t tiles_down, tiles_across;
    float *scratch;
    int64_t scratch_floats; /* of one thread */
} product;

/* Sums are made where c is, if that is fp32; the microkernel adds a bias of fp32 only. */
static bool sums_apart(const launch *l) {
    return l->out[0].type != DTYPE_F32 || (l->in[2].data != NULL && STORED_ROUNDS);
}

static int64_t scratch_floats(bool apart) {
    return PANEL_FLOATS + ROW_FLOATS + (apart ? SUM_FLOATS : 0);
}

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
            rows = p->apart ? minimum(rows, SUM_ROWS) : rows;
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

/* What one thread computes at a time, and how it walks through it: blocks of columns; for each the blocks of the inner
 * index, whose panels are packed; for each the blocks of rows. */
typedef struct tile {
    int64_t first_row, end_row, block_rows;
    int64_t first_column, end_column;
} tile;

typedef struct block {
    int64_t row, rows, column, columns, k, depth;
} block;

static tile tile_of(const product *p, int64_t number) {
    tile t = {.first_row = number / p->tiles_across * p->tile_rows,
              .first_column = number % p->tiles_across * p->tile_columns};
    t.end_row = minimum(t.first_row + p->tile_rows, p->m);
    t.end_column = minimum(t.first_column + p->tile_columns, p->n);
    t.block_rows = divide_up(t.end_row - t.first_row, divide_up(t.end_row - t.first_row, BLOCK_ROWS));
    return t;
}

static block block_at(const product *p, const tile *t, int64_t row, int64_t column, int64_t k) {
    return (block){.row = row,
                   .rows = minimum(t->block_rows, t->end_row - row),
                   .column = column,
                   .columns = minimum(BLOCK_COLUMNS, t->end_column - column),
                   .k = k,
                   .depth = minimum(p->depth, p->k - k)};
}

/* The first block with the panels after b's; no columns when b's are the last. */
static block next_panels(const product *p, const tile *t, const block *b) {
    if (b->k + b->depth < p->k)
        return block_at(p, t, t->first_row, b->column, b->k + b->depth);
    return block_at(p, t, t->first_row, b->column + b->columns, 0);
}

static block next_block(const product *p, const tile *t, const block *b) {
    if (b->row + b->rows < t->end_row)
        return block_at(p, t, b->row + b->rows, b->column, b->k);
    return next_panels(p, t, b);
}

/* What will be packed next, fetched in parts meanwhile: without that packing spends half of its time waiting for
 * memory, which for a head of 256 x 50257 is a tenth of the whole. Panels are fetched while all row blocks before them
 * are multiplied, of which this is one. */
typedef struct prefetch {
    region rows, panels;
    int64_t row_block, row_blocks;
} prefetch;

static prefetch prefetch_of(const product *p, const tile *t, const block *b, const block *next) {
    block after = next_panels(p, t, b);
    return (prefetch){.rows = matrix_region(&p->a, next->row, next->rows, next->k, next->depth),
                      .panels = matrix_region(&p->b, after.column, after.columns, after.k, after.depth),
                      .row_block = (b->row - t->first_row) / t->block_rows,
                      .row_blocks = divide_up(t->end_row - t->first_row, t->block_rows)};
}

/* What call number `call` of a block's calls of the microkernel fetches: panels and rows in turn. */
static fetch fetch_of(const prefetch *ahead, int64_t call, int64_t calls) {
    if (call % 2 == 1)
        return region_part(&ahead->rows, call / 2, calls / 2);
    int64_t parts = divide_up(calls, 2);
    return region_part(&ahead->panels, ahead->row_block * parts + call / 2, ahead->row_blocks * parts);
}

/* Heights that differ by one at most: a last group of one or two rows would run far below the full speed. */
static int group_height(int64_t rows, int64_t groups, int64_t group) {
    return (int)(rows / groups + (group < rows % groups));
}

/* Where the sums of a block are made. */
typedef struct sums {
    float *first;
    int64_t stride;
} sums;

/* Apart, the sums of one block of columns lie together: of all rows of a tile if later blocks of the inner index add to
 * them. */
static sums sums_of(const product *p, const tile *t, const block *b, float *apart) {
    if (!p->apart)
        return (sums){(float *)p->c->data + b->row * p->n + b->column, p->n};
    int64_t row = p->k > p->depth ? b->row - t->first_row : 0;
    return (sums){apart + row * BLOCK_COLUMNS, BLOCK_COLUMNS};
}

static void multiply_block(const product *p, const block *b, const float *rows, const float *panels, const sums *into,
                           const prefetch *ahead) {
    bool adds = b->k > 0 || (p->accumulate && !p->apart), last = b->k + b->depth == p->k;
    const float *bias = p->apart ? NULL : (const float *)p->bias;
    int64_t groups = divide_up(b->rows, HEIGHT), across = divide_up(b->columns, PANEL), row = b->row;
    int64_t calls = groups * across, call = 0;
    for (int64_t group = 0; group < groups; group++) {
        int height = group_height(b->rows, groups, group);
        for (int64_t j = 0; j < across; j++, call++) {
            int64_t column = b->column + j * PANEL;
            destination to = {.c = into->first + (row - b->row) * into->stride + (column - b->column),
                              .stride = into->stride,
                              .columns = p->apart ? PANEL : minimum(PANEL, b->column + b->columns - column),
                              .add = adds,
                              .bias = bias != NULL && last ? bias + column : NULL};
            fetch lines = fetch_of(ahead, call, calls);
            KERNEL(microkernel)
            (height, b->depth, rows, panels + j * panel_stride(b->depth), &to, lines.count > 0 ? &lines : NULL);
        }
        row += height;
        rows += height * ROW_STRIDE;
    }
}

/* Rounds the sums of a block, which lie apart, to c. */
static void store_block(const product *p, const block *b, const sums *from) {
    for (int64_t r = 0; r < b->rows; r++) {
        float *sum = from->first + r * from->stride, before[BLOCK_COLUMNS];
        int64_t first = (b->row + r) * p->n + b->column;
        for (int64_t j = 0; p->bias != NULL && j < b->columns; j += LANES)
            vector_store(sum + j, vector_load(sum + j) + stored_load_up_to(p->bias + b->column + j, b->columns - j, 0));
        if (p->accumulate)
            widen_run(p->c->type, p->c->data, first, b->columns, before);
        for (int64_t j = 0; p->accumulate && j < b->columns; j++)
            sum[j] += before[j];
        narrow_run(p->c->type, sum, b->columns, p->c->data, first);
    }
}

static void multiply_tile(void *context, int64_t number, int thread) {
    const product *p = context;
    float *panels = p->scratch + (int64_t)thread * p->scratch_floats, *rows = panels + PANEL_FLOATS;
    tile t = tile_of(p, number);
    block next, b = block_at(p, &t, t.first_row, t.first_column, 0);
    for (; b.columns > 0; b = next) {
        next = next_block(p, &t, &b);
        prefetch ahead = prefetch_of(p, &t, &b, &next);
        if (b.row == t.first_row)
            STORED(pack_panels)(&p->b, b.column, b.columns, b.k, b.depth, panels);
        STORED(pack_rows)(&p->a, b.row, b.rows, b.k, b.depth, rows);
        sums into = sums_of(p, &t, &b, rows + ROW_FLOATS);
        multiply_block(p, &b, rows, panels, &into, &ahead);
        if (p->apart && b.k + b.depth == p->k)
            store_block(p, &b, &into);
    }
}

size_t STORED(matmul_workspace)(const launch *l, int threads) {
    return (size_t)(threads * scratch_floats(sums_apart(l))) * sizeof(float);
}

void STORED(matmul_run)(pool *threads, const launch *l) {
    const attributes *options = &l->attributes;
    check(!options->gelu && l->out[1].data == NULL && l->out[2].data == NULL, "a fused matmul on the CPU");
    product p = {.c = &l->out[0],
                 .bias = l->in[2].data,
                 .accumulate = l->accumulate & 1,
                 .apart = sums_apart(l),
                 .scratch = l->workspace};
    p.scratch_floats = scratch_floats(p.apart);
    product_shape(&p, l);
    p.a = (matrix){l->in[0].data, options->transpose_a ? p.m : p.k, options->transpose_a};
    p.b = (matrix){l->in[1].data, options->transpose_b ? p.k : p.n, !options->transpose_b};
    choose_tiles(&p, pool_threads(threads));
    pool_run(threads, p.tiles_down * p.tiles_across, multiply_tile, &p);
}
