#include "launch/plan.h"

#include "engine/autodiff.h"
#include "engine/checked.h"
#include "engine/place.h"
#include "engine/waits.h"
#include "optim/adamw.h"
#include "shard/schedule.h"

#include <stdlib.h>

static step *finish_step(step *s, device *d) {
    place_workspaces(s->program, d);
    place(s->program);
    waits_derive(s->program);
    return s;
}

static step *training_step(const plan *p, const config *c, const program *forward, const schedule_settings *settings,
                           device *d) {
    program *micro = autodiff(forward);
    step *s = shard_schedule(micro, &p->model->list, p->layout, settings);
    program_destroy(micro);
    const optimizer_settings optimizer = {.beta_first = c->optimizer.betas[0],
                                          .beta_second = c->optimizer.betas[1],
                                          .epsilon = c->optimizer.epsilon,
                                          .weight_decay = c->optimizer.weight_decay,
                                          .clip = c->optimizer.clip};
    optimizer_append(s, &p->model->list, p->layout, &optimizer);
    return finish_step(s, d);
}

static step *validation_step(const plan *p, const program *forward, const schedule_settings *settings, device *d) {
    step *s = shard_schedule(forward, &p->model->list, p->layout, settings);
    validation_append(s);
    return finish_step(s, d);
}

/* Where a program's own tensors end and its collectives' workspace begins is its own affair: the arena holds the
 * largest. */
static int64_t arena_of(const plan *p, const config *c, const step *s, const world *w) {
    if (s == NULL)
        return 0;
    const run_settings settings = plan_run_settings(p, c);
    return s->program->arena_bytes + run_workspace(s->program, w, &settings);
}

plan *plan_create(const config *c, const model_shape *shape, const world *w, device *d, plan_wishes wishes) {
    plan *p = memory_allocate(1, sizeof *p);
    const int group = (int)c->shard.group;
    p->mesh = (mesh){.rank = w->rank, .ranks = w->size, .group_size = group};
    p->model = model_create(shape, c->shard.unit);
    p->layout = flat_layout_create(&p->model->list, group, w->rank % group);
    p->passes = c->train.global_batch / (c->train.micro_batch * w->size);
    const schedule_settings settings = {.ranks = w->size,
                                        .passes = p->passes,
                                        .prefetch = (int)c->shard.prefetch,
                                        .keep_gathered = c->shard.keep_gathered == CONFIG_YES,
                                        .reduce_each = c->shard.reduce_every == CONFIG_EACH,
                                        .optimizer = wishes.train};
    program *forward = model_forward(p->model, c->train.micro_batch, c->train.sequence, HEAD_LOSS);
    if (wishes.train)
        p->train = training_step(p, c, forward, &settings, d);
    if (wishes.validation)
        p->validation = validation_step(p, forward, &settings, d);
    program_destroy(forward);
    p->arena_bytes = maximum(arena_of(p, c, p->train, w), arena_of(p, c, p->validation, w));
    if (p->train != NULL && p->validation != NULL)
        check(p->train->program->persistent_bytes == p->validation->program->persistent_bytes,
              "training and validation disagree on persistent tensors");
    return p;
}

void plan_destroy(plan *p) {
    if (p == NULL)
        return;
    step_destroy(p->train);
    step_destroy(p->validation);
    flat_layout_destroy(p->layout);
    model_destroy(p->model);
    free(p);
}

run_settings plan_run_settings(const plan *p, const config *c) {
    return (run_settings){.mesh = p->mesh,
                          .transport = (transport)c->shard.transport,
                          .timeout_seconds = c->shard.timeout};
}
