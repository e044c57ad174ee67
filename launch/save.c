#include "launch/save.h"

#include "engine/checked.h"
#include "launch/resume.h"
#include "launch/weights.h"
#include "shard/checkpoint_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool save_model(trainer *t, error *e) {
    char *folder = memory_format("%s/model", t->config->output.folder);
    const dtype type = t->config->output.model_dtype == CONFIG_MODEL_BF16 ? DTYPE_BF16 : DTYPE_F32;
    const bool good = weights_save(t->plan, t->plan->train, t->train, t->world, folder, type, t->config->model.from, e);
    free(folder);
    return good;
}

/* ---- the state, in the arena ---- */

typedef struct arena_state {
    const step *of;
    run *run;
} arena_state;

static tensor_id tensor_of(const arena_state *s, int32_t unit, state_part part) {
    const tensor_id *const tensors[STATE_PARTS] = {s->of->master, s->of->first_moment, s->of->second_moment};
    return tensors[part][unit];
}

static void read_arena(void *context, int32_t unit, state_part part, int64_t at, int64_t count, float *values) {
    const arena_state *s = context;
    const int64_t size = dtype_bytes(DTYPE_F32);
    run_read(s->run, tensor_of(s, unit, part), at * size, values, count * size);
}

static void write_arena(void *context, int32_t unit, state_part part, int64_t at, int64_t count, const float *values) {
    const arena_state *s = context;
    const int64_t size = dtype_bytes(DTYPE_F32);
    run_write(s->run, tensor_of(s, unit, part), at * size, values, count * size);
}

static checkpoint_state state_of(const plan *p, arena_state *s) {
    return (checkpoint_state){&p->model->list, p->layout, s, read_arena, write_arena};
}

bool save_restore(const plan *p, run *r, const checkpoint_manifest *m, const char *path, error *e) {
    arena_state arena = {p->train, r};
    const checkpoint_state state = state_of(p, &arena);
    const double updates = (double)m->updates;
    run_write(r, p->train->update_count, 0, &updates, sizeof updates);
    return checkpoint_load(&state, m, path, e);
}

/* ---- checkpoints ---- */

static bool write_checkpoint(trainer *t, const char *folder, const position *at, error *e) {
    arena_state arena = {t->plan->train, t->train};
    const checkpoint_state state = state_of(t->plan, &arena);
    double updates;
    run_read(t->train, t->plan->train->update_count, 0, &updates, sizeof updates);
    checkpoint_facts facts = {.step = at->step, .updates = (int64_t)updates};
    if (t->world->rank == 0)
        facts.training = training_record(t->config, &t->plan->model->shape, t->data, t->world->size, *at);
    const bool good = checkpoint_write(&state, t->world, folder, &facts, e);
    json_decref(facts.training);
    return good;
}

static void warn(const trainer *t, const error *e) {
    if (t->world->rank == 0)
        fprintf(stderr, "fsdp_train: warning: %s\n", e->message);
}

/* The new checkpoint stands, so that an older one that cannot be removed is no failure of it. */
static void remove_older(const trainer *t, const char *folder) {
    error left = {0};
    if (t->world->rank == 0 && !checkpoint_prune(folder, t->config->output.keep, &left))
        warn(t, &left);
}

static bool fail(trainer *t, const position *at, const error *why, error *e) {
    if (t->config->output.checkpoint_failure == CONFIG_FAILURE_STOP)
        return error_set(e, why->code, "no checkpoint of step %lld: %s", (long long)at->step, why->message);
    error told = {0};
    error_set(&told, why->code, "no checkpoint of step %lld: %.1800s", (long long)at->step, why->message);
    warn(t, &told);
    t->unsaved = true;
    return true;
}

bool save_checkpoint(trainer *t, const position *at, error *e) {
    if (at->step == t->saved)
        return true;
    const double start = seconds_now();
    error why = {0};
    char *folder = resume_folder(t->config);
    const bool good = write_checkpoint(t, folder, at, &why);
    if (good)
        remove_older(t, folder);
    free(folder);
    if (!good)
        return fail(t, at, &why, e);
    t->saved = at->step;
    t->unsaved = false;
    return t->world->rank > 0 || metrics_checkpoint(t->metrics, at->step, seconds_now() - start, e);
}
