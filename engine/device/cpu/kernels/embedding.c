/* embedding, and its backward as sums over the rows of a gradient. */
#include "engine/device/cpu/kernels/exports.h"
#include "engine/device/cpu/kernels/storage.h"
#include "engine/device/cpu/kernels/tiles.h"

static void embedding_tile(void *context, int64_t tile, int thread) {
    (void)thread;
    const launch *l = context;
    const int32_t *tokens = l->in[0].data;
    const stored *table = l->in[1].data, *positions = l->in[2].data;
    int64_t rows = l->out[0].shape[0], width = l->out[0].shape[1];
    tile_range range = tile_range_of(tile, tile_rows(width), rows);
    for (int64_t row = range.begin; row < range.end; row++) {
        const stored *from = table + tokens[row] * width;
        stored *out = (stored *)l->out[0].data + row * width;
        if (positions == NULL) {
            memcpy(out, from, (size_t)width * sizeof *out);
            continue;
        }
        const stored *position = positions + row % l->attributes.sequence * width;
        for (int64_t c = 0; c < width; c += LANES)
            stored_store_up_to(out + c, width - c,
                               stored_load_up_to(from + c, width - c, 0) +
                                   stored_load_up_to(position + c, width - c, 0));
    }
}

void STORED(embedding_run)(pool *p, const launch *l) {
    tiles_run(p, l->out[0].shape[0], tile_rows(l->out[0].shape[1]), embedding_tile, l);
}

/* out[first + c] (+)= sum over i < count of rows[(order ? order[i] : i * stride) * width + c], in double: a frequent
 * token's row is a sum of thousands. */
static void sum_rows(const stored *rows, const int32_t *order, int64_t stride, int64_t count, int64_t width, bool add,
                     const operand *out, int64_t first) {
    for (int64_t c = 0; c < width; c += DOUBLE_LANES) {
        int64_t lanes = minimum(width - c, DOUBLE_LANES);
        vector_double total = {0};
        for (int64_t i = 0; add && i < lanes; i++)
            total[i] = gradient_get(out, first + c + i);
        for (int64_t i = 0; i < count; i++)
            total += stored_load_double(rows + (order != NULL ? order[i] : i * stride) * width + c, lanes);
        for (int64_t i = 0; i < lanes; i++)
            gradient_set(out, first + c + i, total[i]);
    }
}

static void clear(const operand *out, int64_t first, int64_t count) {
    const int64_t size = dtype_bytes(out->type);
    memset((char *)out->data + first * size, 0, (size_t)(count * size));
}

/* First i with tokens[order[i]] >= token. */
static int64_t first_of_token(const int32_t *tokens, const int32_t *order, int64_t rows, int64_t token) {
    int64_t low = 0, high = rows;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (tokens[order[middle]] < token)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* A tile is a run of the table's rows, so that zeroing and summing go together and no row has two writers. */
static void embedding_backward_tile(void *context, int64_t tile, int thread) {
    (void)thread;
    const launch *l = context;
    const int32_t *tokens = l->in[1].data, *order = l->in[2].data;
    int64_t rows = l->in[0].shape[0], vocabulary = l->out[0].shape[0], width = l->out[0].shape[1];
    tile_range range = tile_range_of(tile, tile_rows(width), vocabulary);
    int64_t next = first_of_token(tokens, order, rows, range.begin);
    for (int64_t v = range.begin; v < range.end; v++) {
        int64_t first = next;
        while (next < rows && tokens[order[next]] == v)
            next++;
        if (next > first)
            sum_rows(l->in[0].data, order + first, 0, next - first, width, launch_adds(l, 0), &l->out[0], v * width);
        else if (!launch_adds(l, 0))
            clear(&l->out[0], v * width, width);
    }
}

void STORED(embedding_backward_run)(pool *p, const launch *l) {
    tiles_run(p, l->out[0].shape[0], tile_rows(l->out[0].shape[1]), embedding_backward_tile, l);
}

static void position_backward_tile(void *context, int64_t tile, int thread) {
    (void)thread;
    const launch *l = context;
    int64_t rows = l->in[0].shape[0], positions = l->out[0].shape[0], width = l->out[0].shape[1];
    int64_t sequence = l->attributes.sequence;
    tile_range range = tile_range_of(tile, tile_rows(width), positions);
    for (int64_t t = range.begin; t < range.end; t++) /* positions beyond the sequence get zero */
        sum_rows((const stored *)l->in[0].data + t * width, NULL, sequence, t < sequence ? rows / sequence : 0, width,
                 launch_adds(l, 0), &l->out[0], t * width);
}

void STORED(position_backward_run)(pool *p, const launch *l) {
    tiles_run(p, l->out[0].shape[0], tile_rows(l->out[0].shape[1]), position_backward_tile, l);
}
