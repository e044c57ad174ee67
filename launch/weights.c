#include "launch/weights.h"

#include "engine/checked.h"
#include "engine/device/update.h"
#include "models/huggingface.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 20 }; /* elements moved at a time */

static int64_t bytes_of(int64_t elements) {
    return elements * dtype_bytes(DTYPE_F32);
}

static void zero_tensor(const step *s, run *r, tensor_id t, const void *zeros) {
    const int64_t bytes = s->program->tensors[t].bytes;
    for (int64_t at = 0; at < bytes; at += bytes_of(PIECE))
        run_write(r, t, at, zeros, minimum(bytes_of(PIECE), bytes - at));
}

static void rope_tables(const plan *p, const step *s, run *r, int64_t sequence) {
    tensor_id tables[2] = {NO_TENSOR, NO_TENSOR};
    for (tensor_id t = 0; t < s->program->tensor_count; t++)
        if (s->program->tensors[t].role == ROLE_CONSTANT)
            tables[strcmp(s->program->tensors[t].name, "rope.sine") == 0] = t;
    if (tables[0] == NO_TENSOR)
        return;
    const int64_t bytes = s->program->tensors[tables[0]].bytes;
    float *cosine = memory_allocate(2, (size_t)bytes), *sine = cosine + bytes / bytes_of(1);
    model_rope_table(&p->model->shape, sequence, cosine, sine);
    run_write(r, tables[0], 0, cosine, bytes);
    run_write(r, tables[1], 0, sine, bytes);
    free(cosine);
}

/* Calls `fill` for every piece of every parameter that this rank owns, and stores what it fills. */
typedef bool fill_piece(void *context, int32_t parameter, int64_t first, int64_t count, float *values, error *e);

static bool fill_shards(const plan *p, const step *s, run *r, fill_piece *fill, void *context, error *e) {
    float *piece = memory_allocate(PIECE, sizeof *piece);
    bool good = true;
    for (int32_t i = 0; i < p->model->list.count && good; i++) {
        const flat_slice slice = flat_slice_of(p->layout, &p->model->list, p->layout->group_rank, i);
        for (int64_t done = 0; done < slice.count && good; done += PIECE) {
            const int64_t count = minimum(PIECE, slice.count - done);
            good = fill(context, i, slice.first + done, count, piece, e);
            if (good)
                run_write(r, s->master[p->model->list.items[i].unit], bytes_of(slice.at + done), piece,
                          bytes_of(count));
        }
    }
    free(piece);
    return good;
}

typedef struct initial_context {
    const model *m;
    uint64_t seed;
} initial_context;

static bool initial_piece(void *context, int32_t parameter, int64_t first, int64_t count, float *values, error *e) {
    const initial_context *c = context;
    (void)e;
    model_initial_values(c->m, parameter, c->seed, first, count, values);
    return true;
}

static void zero_state(const step *s, run *r) {
    void *zeros = memory_allocate(PIECE, (size_t)bytes_of(1));
    for (int32_t u = 0; u < s->units; u++) {
        const tensor_id state[] = {s->master[u], s->first_moment[u], s->second_moment[u]};
        for (size_t k = 0; k < sizeof state / sizeof *state; k++)
            if (state[k] != NO_TENSOR)
                zero_tensor(s, r, state[k], zeros);
    }
    if (s->update_count != NO_TENSOR)
        zero_tensor(s, r, s->update_count, zeros);
    free(zeros);
}

void weights_prepare(const plan *p, const step *s, run *r, int64_t sequence) {
    const double loss_scale[LOSS_SCALE_COUNT] = {[LOSS_SCALE] = p->precision.loss_scale};
    zero_state(s, r);
    if (s->loss_scale != NO_TENSOR)
        run_write(r, s->loss_scale, 0, loss_scale, sizeof loss_scale);
    rope_tables(p, s, r, sequence);
}

void weights_initialise(const plan *p, const step *s, run *r, uint64_t seed) {
    initial_context context = {p->model, seed};
    error none = {0};
    fill_shards(p, s, r, initial_piece, &context, &none);
}

static bool loaded_piece(void *context, int32_t parameter, int64_t first, int64_t count, float *values, error *e) {
    return huggingface_read(context, parameter, first, count, values, e);
}

bool weights_load(const plan *p, const step *s, run *r, const char *folder, char **warning, error *e) {
    huggingface_reader *reader = NULL;
    if (!huggingface_open(folder, &p->model->list, &reader, warning, e))
        return false;
    const bool good = fill_shards(p, s, r, loaded_piece, reader, e);
    huggingface_close(reader);
    return good;
}

/* Rank 0 gets a piece from its owner and writes it. After an error it goes on receiving, so that nobody is left. */
static void save_piece(const plan *p, const step *s, run *r, world *w, huggingface_writer *writer, int32_t parameter,
                       int owner, flat_slice piece, float *values, error *e) {
    if (w->rank == owner)
        run_read(r, s->master[p->model->list.items[parameter].unit], bytes_of(piece.at), values, bytes_of(piece.count));
    if (w->rank == owner && owner != 0)
        world_send(w, values, (size_t)bytes_of(piece.count), 0);
    if (w->rank == 0 && owner != 0)
        world_receive(w, values, (size_t)bytes_of(piece.count), owner);
    if (w->rank == 0 && e->code == 0)
        huggingface_write(writer, parameter, piece.first, piece.count, values, e);
}

static void save_pieces(const plan *p, const step *s, run *r, world *w, huggingface_writer *writer, error *e) {
    float *values = memory_allocate(PIECE, sizeof *values);
    for (int32_t i = 0; i < p->model->list.count; i++)
        for (int owner = 0; owner < p->layout->group_size; owner++) {
            const flat_slice slice = flat_slice_of(p->layout, &p->model->list, owner, i);
            for (int64_t done = 0; done < slice.count; done += PIECE) {
                const flat_slice piece = {slice.first + done, minimum(PIECE, slice.count - done), slice.at + done};
                if (w->rank == 0 || w->rank == owner)
                    save_piece(p, s, r, w, writer, i, owner, piece, values, e);
            }
        }
    free(values);
}

bool weights_save(const plan *p, const step *s, run *r, world *w, const char *folder, dtype type, const char *from,
                  error *e) {
    huggingface_writer *writer = NULL;
    if (w->rank == 0)
        huggingface_writer_open(folder, &p->model->shape, &p->model->list, type, from, &writer, e);
    save_pieces(p, s, r, w, writer, e);
    if (w->rank == 0 && e->code == 0)
        huggingface_writer_finish(writer, e);
    else
        huggingface_writer_abandon(writer);
    return world_agree(w, e);
}
