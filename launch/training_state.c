#include "launch/training_state.h"

#include "engine/device/update.h"

static tensor_id tensor_of(const training_state *s, int32_t unit, state_part part) {
    const tensor_id *const tensors[STATE_PARTS] = {s->of->master, s->of->first_moment, s->of->second_moment};
    return tensors[part][unit];
}

static void read_state(void *context, int32_t unit, state_part part, int64_t at, int64_t count, float *values) {
    const training_state *s = context;
    const int64_t size = dtype_bytes(DTYPE_F32);
    run_read(s->run, tensor_of(s, unit, part), at * size, values, count * size);
}

static void write_state(void *context, int32_t unit, state_part part, int64_t at, int64_t count, const float *values) {
    const training_state *s = context;
    const int64_t size = dtype_bytes(DTYPE_F32);
    run_write(s->run, tensor_of(s, unit, part), at * size, values, count * size);
}

checkpoint_state training_state_of(const plan *p, training_state *s) {
    return (checkpoint_state){&p->model->list, p->layout, s, read_state, write_state};
}

int64_t training_state_updates(const plan *p, run *r) {
    double updates;
    run_read(r, p->train->update_count, 0, &updates, sizeof updates);
    return (int64_t)updates;
}

static bool scales_dynamically(const plan *p) {
    return p->train->loss_scale != NO_TENSOR && p->precision.loss_scale_interval > 0;
}

void training_state_read_loss_scale(const plan *p, run *r, position *at) {
    double state[LOSS_SCALE_COUNT] = {0};
    if (scales_dynamically(p))
        run_read(r, p->train->loss_scale, 0, state, sizeof state);
    at->loss_scale = state[LOSS_SCALE];
    at->good_steps = state[LOSS_SCALE_GOOD_STEPS];
}

void training_state_write_loss_scale(const plan *p, run *r, const position *at) {
    const double state[LOSS_SCALE_COUNT] = {[LOSS_SCALE] =
                                                at->loss_scale > 0 ? at->loss_scale : p->precision.loss_scale,
                                            [LOSS_SCALE_GOOD_STEPS] = at->good_steps};
    if (scales_dynamically(p))
        run_write(r, p->train->loss_scale, 0, state, sizeof state);
}

bool training_state_restore(const plan *p, run *r, const checkpoint_manifest *m, const char *path, error *e) {
    training_state s = {p->train, r};
    const checkpoint_state state = training_state_of(p, &s);
    const double updates = (double)m->updates;
    run_write(r, p->train->update_count, 0, &updates, sizeof updates);
    return checkpoint_load(&state, m, path, e);
}
