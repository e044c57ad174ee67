/* adamw on a shard: bound by memory, four streams read and three written. Formulas: update.h. */
#include "engine/device/cpu/kernels/exports.h"
#include "engine/device/cpu/kernels/tiles.h"
#include "engine/device/cpu/kernels/vector_math.h"
#include "engine/device/update.h"

/* What is the same for every element, rounded once from the fp64 scalars. */
typedef struct adamw_factors {
    float clip;
    float beta_first, rest_first; /* beta, 1 - beta */
    float beta_second, rest_second;
    float decay;        /* 1 - rate * weight_decay */
    float step;         /* rate / (1 - beta_first^t) */
    float second_scale; /* 1 / sqrt(1 - beta_second^t) */
    float epsilon;
} adamw_factors;

static adamw_factors factors_of(const launch *l) {
    const attributes *a = &l->attributes;
    const double *scalars = l->in[1].data, *result = l->in[2].data, *update_count = l->in[3].data;
    double rate = scalars[SCALAR_LEARNING_RATE];
    return (adamw_factors){
        .clip = (float)result[RESULT_CLIP],
        .beta_first = (float)a->beta_first,
        .rest_first = (float)(1 - a->beta_first),
        .beta_second = (float)a->beta_second,
        .rest_second = (float)(1 - a->beta_second),
        .decay = (float)(1 - rate * a->weight_decay),
        .step = (float)(rate / (1 - pow(a->beta_first, *update_count))),
        .second_scale = (float)(1 / sqrt(1 - pow(a->beta_second, *update_count))),
        .epsilon = (float)a->epsilon,
    };
}

static void update(const adamw_factors *f, bool decay, const float *gradient, float *master, float *first,
                   float *second, int64_t elements) {
    float kept = decay ? f->decay : 1;
    for (int64_t i = 0; i < elements; i += LANES) {
        int64_t count = elements - i;
        vector g = vector_load_up_to(gradient + i, count, 0) * f->clip;
        vector m = vector_load_up_to(first + i, count, 0) * f->beta_first + g * f->rest_first;
        vector v = vector_load_up_to(second + i, count, 0) * f->beta_second + g * g * f->rest_second;
        vector step = m * f->step / (vector_sqrt(v) * f->second_scale + f->epsilon);
        vector_store_up_to(first + i, count, m);
        vector_store_up_to(second + i, count, v);
        vector_store_up_to(master + i, count, vector_load_up_to(master + i, count, 0) * kept - step);
    }
}

static void adamw_tile(void *context, int64_t tile, int thread) {
    (void)thread;
    const launch *l = context;
    const attributes *a = &l->attributes;
    adamw_factors factors = factors_of(l);
    const float *gradient = l->in[0].data;
    float *master = l->out[0].data, *first = l->out[1].data, *second = l->out[2].data;
    tile_range range = tile_range_of(tile, TILE_ELEMENTS, operand_count(&l->in[0]));
    for (int64_t k = 0; k < a->segment_count; k++) {
        const segment *s = &a->segments[k];
        int64_t begin = maximum(s->offset, range.begin), end = minimum(s->offset + s->count, range.end);
        if (begin < end)
            update(&factors, s->decay, gradient + begin, master + begin, first + begin, second + begin, end - begin);
    }
}

void KERNEL(adamw_run)(pool *p, const launch *l) {
    const double *result = l->in[2].data;
    if (result[RESULT_BAD] == 0)
        tiles_run(p, operand_count(&l->in[0]), TILE_ELEMENTS, adamw_tile, l);
}
