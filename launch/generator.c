/* Every token is a whole forward pass over a window of tokens; rows behind the last token are computed and ignored,
 * which causal attention allows. A window is a program of its own, twice as long as the one before, so that a short
 * text is cheap and few windows are built; each reads its parameters from the folder. */
#include "launch/generator.h"

#include "engine/checked.h"
#include "engine/place.h"
#include "engine/run.h"
#include "engine/waits.h"
#include "launch/machine.h"
#include "models/huggingface.h"

#include <stdlib.h>
#include <string.h>

enum { SHORTEST_WINDOW = 64, PIECE_ELEMENTS = 1 << 18 };

typedef struct window {
    int64_t length; /* tokens; 0: none is open */
    program *program;
    device_memory arena;
    run *run;
} window;

struct generator {
    world *world;
    device *device;
    model *model;
    huggingface_reader *weights;
    window window;
};

bool generator_open(const char *folder, world *w, device *d, generator **opened, char **warning, error *e) {
    generator *g = memory_allocate(1, sizeof *g);
    model_shape shape;
    char *dropout = NULL; /* means nothing here */
    g->world = w;
    g->device = d;
    *warning = NULL;
    bool fine = huggingface_read_shape(folder, &shape, &dropout, e);
    if (fine) {
        g->model = model_create(&shape, 1);
        fine = huggingface_open(folder, &g->model->list, &g->weights, warning, e);
    }
    free(dropout);
    if (!fine) {
        generator_close(g);
        g = NULL;
    }
    *opened = g;
    return fine;
}

static void close_window(generator *g) {
    window *open = &g->window;
    run_destroy(open->run);
    if (open->arena.base != NULL)
        g->device->functions->release(g->device, &open->arena);
    if (open->program != NULL)
        program_destroy(open->program);
    *open = (window){0};
}

void generator_close(generator *g) {
    if (g == NULL)
        return;
    close_window(g);
    huggingface_close(g->weights);
    model_destroy(g->model);
    free(g);
}

const model_shape *generator_shape(const generator *g) {
    return &g->model->shape;
}

static tensor_id find_tensor(const program *p, const char *name) {
    for (tensor_id t = 0; t < p->tensor_count; t++)
        if (strcmp(p->tensors[t].name, name) == 0)
            return t;
    return NO_TENSOR;
}

static bool load_parameter(generator *g, tensor_id t, float *piece, error *e) {
    const tensor *x = &g->window.program->tensors[t];
    const int64_t elements = x->bytes / dtype_bytes(x->type);
    for (int64_t first = 0; first < elements; first += PIECE_ELEMENTS) {
        const int64_t count = minimum(PIECE_ELEMENTS, elements - first);
        if (!huggingface_read(g->weights, x->parameter, first, count, piece, e))
            return false;
        run_write(g->window.run, t, first * dtype_bytes(x->type), piece, count * dtype_bytes(x->type));
    }
    return true;
}

static bool load_parameters(generator *g, error *e) {
    const program *p = g->window.program;
    float *piece = memory_allocate(PIECE_ELEMENTS, sizeof *piece);
    bool fine = true;
    for (tensor_id t = 0; fine && t < p->tensor_count; t++)
        fine = p->tensors[t].role != ROLE_PARAMETER || load_parameter(g, t, piece, e);
    free(piece);
    return fine;
}

static void load_rope_tables(generator *g) {
    const tensor_id cosine = find_tensor(g->window.program, "rope.cosine");
    const tensor_id sine = find_tensor(g->window.program, "rope.sine");
    if (cosine == NO_TENSOR)
        return;
    const int64_t bytes = g->window.program->tensors[cosine].bytes;
    float *tables[2] = {memory_allocate((size_t)bytes, 1), memory_allocate((size_t)bytes, 1)};
    model_rope_table(&g->model->shape, g->window.length, tables[0], tables[1]);
    run_write(g->window.run, cosine, 0, tables[0], bytes);
    run_write(g->window.run, sine, 0, tables[1], bytes);
    free(tables[0]);
    free(tables[1]);
}

/* Asked before anything large is allocated: the system would give the memory and end the program when it is used. */
static bool check_memory(int64_t needed, error *e) {
    const int64_t available = machine_available_memory();
    if (available < 0 || needed <= available)
        return true;
    return error_set(e, EXIT_LAUNCH, "the model needs %.1f MB on this machine, which has %.1f MB to give",
                     (double)needed / 1e6, (double)available / 1e6);
}

static bool open_window(generator *g, int64_t length, error *e) {
    const run_settings settings = {.mesh = {.rank = 0, .ranks = 1, .group_size = 1}, .timeout_seconds = 600};
    window *opened = &g->window;
    close_window(g);
    opened->length = length;
    opened->program = model_forward(g->model, 1, length, HEAD_LOGITS, &(precision_settings){0});
    for (tensor_id t = 0; t < opened->program->tensor_count; t++) /* whole parameters stay from pass to pass */
        if (opened->program->tensors[t].role == ROLE_PARAMETER)
            opened->program->tensors[t].persistent = true;
    place_workspaces(opened->program, g->device);
    place(opened->program, INT64_MAX);
    waits_derive(opened->program);
    if (!check_memory(opened->program->arena_bytes, e) ||
        !g->device->functions->allocate(g->device, (size_t)opened->program->arena_bytes, &opened->arena, e) ||
        !run_create(opened->program, g->world, g->device, &opened->arena, &settings, &opened->run, e) ||
        !load_parameters(g, e)) {
        close_window(g);
        return false;
    }
    load_rope_tables(g);
    return true;
}

static int64_t window_for(int64_t count, int64_t context) {
    int64_t length = SHORTEST_WINDOW;
    while (length < count)
        length *= 2;
    return minimum(length, context);
}

bool generator_logits(generator *g, const int32_t *tokens, int64_t count, float *logits, error *e) {
    const model_shape *shape = &g->model->shape;
    const int64_t used = minimum(count, shape->context);
    if (used > g->window.length && !open_window(g, window_for(used, shape->context), e))
        return false;
    size_t bytes = 0;
    int32_t *row = run_host(g->window.run, HOST_TOKENS, &bytes);
    memset(row, 0, bytes);
    memcpy(row, tokens + (count - used), (size_t)used * sizeof *row);
    if (!run_step(g->window.run, e))
        return false;
    const int64_t row_bytes = shape->vocabulary * dtype_bytes(DTYPE_F32);
    run_read(g->window.run, find_tensor(g->window.program, "head.logits"), (used - 1) * row_bytes, logits, row_bytes);
    return true;
}
