/* embedding, and its backward as sums over the rows of a gradient. */
#include "engine/device/cpu/kernels/exports.h"
#include "engine/device/cpu/kernels/tiles.h"
#include "engine/device/cpu/kernels/vector_math.h"

static void embedding_tile(void *context, int64_t tile, int thread) {
    (void)thread;
    const launch *l = context;
    const int32_t *tokens = l->in[0].data;
    const float *table = l->in[1].data, *positions = l->in[2].data;
    int64_t rows = l->out[0].shape[0], width = l->out[0].shape[1];
    tile_range range = tile_range_of(tile, tile_rows(width), rows);
    for (int64_t row = range.begin; row < range.end; row++) {
        const float *from = table + tokens[row] * width;
        float *out = (float *)l->out[0].data + row * width;
        if (positions == NULL) {
            memcpy(out, from, (size_t)width * sizeof *out);
            continue;
        }
        const float *position = positions + row % l->attributes.sequence * width;
        for (int64_t c = 0; c < width; c += LANES)
            vector_store_up_to(out + c, width - c,
                               vector_load_up_to(from + c, width - c, 0) +
                                   vector_load_up_to(position + c, width - c, 0));
    }
}

void KERNEL(embedding_run)(pool *p, const launch *l) {
    tiles_run(p, l->out[0].shape[0], tile_rows(l->out[0].shape[1]), embedding_tile, l);
}

/* out[c] (+)= sum over i < count of rows[(order ? order[i] : i * stride) * width + c], in double: a frequent token's
 * row is a sum of thousands. */
static void sum_rows(const float *rows, const int32_t *order, int64_t stride, int64_t count, int64_t width, bool add,
                     float *out) {
    for (int64_t c = 0; c < width; c += DOUBLE_LANES) {
        int64_t lanes = minimum(width - c, DOUBLE_LANES);
        vector_double total = add ? vector_load_double(out + c, lanes) : (vector_double){0};
        for (int64_t i = 0; i < count; i++)
            total += vector_load_double(rows + (order != NULL ? order[i] : i * stride) * width + c, lanes);
        vector_half narrow = __builtin_convertvector(total, vector_half);
        memcpy(out + c, &narrow, (size_t)lanes * sizeof *out);
    }
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
        float *out = (float *)l->out[0].data + v * width;
        int64_t first = next;
        while (next < rows && tokens[order[next]] == v)
            next++;
        if (next > first)
            sum_rows(l->in[0].data, order + first, 0, next - first, width, launch_adds(l, 0), out);
        else if (!launch_adds(l, 0))
            memset(out, 0, (size_t)width * sizeof *out);
    }
}

void KERNEL(embedding_backward_run)(pool *p, const launch *l) {
    tiles_run(p, l->out[0].shape[0], tile_rows(l->out[0].shape[1]), embedding_backward_tile, l);
}

static void position_backward_tile(void *context, int64_t tile, int thread) {
    (void)thread;
    const launch *l = context;
    int64_t rows = l->in[0].shape[0], positions = l->out[0].shape[0], width = l->out[0].shape[1];
    int64_t sequence = l->attributes.sequence;
    tile_range range = tile_range_of(tile, tile_rows(width), positions);
    for (int64_t t = range.begin; t < range.end; t++) /* positions beyond the sequence get zero */
        sum_rows((const float *)l->in[0].data + t * width, NULL, sequence, t < sequence ? rows / sequence : 0, width,
                 launch_adds(l, 0), (float *)l->out[0].data + t * width);
}

void KERNEL(position_backward_run)(pool *p, const launch *l) {
    tiles_run(p, l->out[0].shape[0], tile_rows(l->out[0].shape[1]), position_backward_tile, l);
}
