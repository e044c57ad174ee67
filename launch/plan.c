#include "launch/plan.h"

#include "engine/autodiff.h"
#include "engine/checked.h"
#include "engine/device/update.h"
#include "engine/fuse.h"
#include "engine/place.h"
#include "engine/recompute.h"
#include "engine/verify.h"
#include "engine/waits.h"
#include "optim/adamw.h"
#include "shard/checkpoint.h"
#include "shard/schedule.h"

#include <stdlib.h>

/* All that the steps of a plan are made from. */
typedef struct ingredients {
    const plan *plan;
    const config *config;
    const world *world;
    device *device;
    const program *forward;
    schedule_settings schedule;
} ingredients;

/* What the device has a say in, before tensors are placed. */
static void adapt_to_device(const ingredients *of, program *p) {
    if (of->config->device.fuse == CONFIG_YES)
        fuse(p, of->device);
    place_workspaces(p, of->device);
}

static step *training_step(const ingredients *of, int32_t level) {
    const config_optimizer *o = &of->config->optimizer;
    const parameter_list *list = &of->plan->model->list;
    bool *keep = recompute_keep(of->forward, (recompute_policy)of->config->shard.recompute, level);
    program *micro = autodiff(of->forward, keep, &of->plan->precision);
    step *s = shard_schedule(micro, list, of->plan->layout, &of->schedule);
    program_destroy(micro);
    free(keep);
    const optimizer_settings optimizer = {.beta_first = o->betas[0],
                                          .beta_second = o->betas[1],
                                          .epsilon = o->epsilon,
                                          .weight_decay = o->weight_decay,
                                          .clip = o->clip,
                                          .loss_scale_interval = of->plan->precision.loss_scale_interval};
    optimizer_append(s, list, of->plan->layout, &optimizer);
    adapt_to_device(of, s->program);
    return s;
}

static step *validation_step(const ingredients *of) {
    step *s = shard_schedule(of->forward, &of->plan->model->list, of->plan->layout, &of->schedule);
    validation_append(s);
    adapt_to_device(of, s->program);
    return s;
}

/* Workspace of a program's collectives, which lies behind the arena. */
static int64_t workspace_of(const ingredients *of, const program *p) {
    const run_settings settings = plan_run_settings(of->plan, of->config);
    return run_workspace(p, of->world, of->device, &settings);
}

/* Gives a step its addresses; returns the bytes that it needs. */
static int64_t finish_step(const ingredients *of, step *s, int64_t budget) {
    const int64_t workspace = workspace_of(of, s->program);
    place(s->program, budget - workspace);
    return s->program->arena_bytes + workspace;
}

/* ---- recompute = memory ---- */

/* What a level needs if it packs without loss. */
static int64_t bound_at(const ingredients *of, int32_t level) {
    step *s = training_step(of, level);
    const int64_t bytes = place_bound(s->program) + workspace_of(of, s->program);
    step_destroy(s);
    return bytes;
}

/* The lowest level from `low` on whose bound keeps the budget; the highest if none does. A higher one never needs more.
 */
static int32_t lowest_level(const ingredients *of, int32_t low, int64_t budget) {
    int32_t high = of->plan->levels;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (bound_at(of, middle) <= budget)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static bool refuse_budget(const ingredients *of, step *s, int64_t budget, error *e) {
    const int64_t least = finish_step(of, s, place_bound(s->program) + workspace_of(of, s->program));
    if (of->config->shard.memory == 0)
        return config_refuse(of->config, &of->config->shard.memory, e,
                             "this machine has %.1f MB to give to each of its ranks, and with everything recomputed "
                             "one needs %.1f MB; use more machines, a smaller train.micro_batch or a smaller model",
                             (double)budget / 1e6, (double)least / 1e6);
    return config_refuse(of->config, &of->config->shard.memory, e,
                         "%lld bytes are too few for this model and batch: with everything recomputed a rank needs "
                         "%lld",
                         (long long)budget, (long long)least);
}

/* The lowest level that keeps the budget, found by bounds. Where packing loses bytes the search goes on as much below.
 */
static bool recompute_for_memory(const ingredients *of, int64_t budget, plan *p, error *e) {
    p->levels = recompute_levels(of->forward);
    p->level = lowest_level(of, 0, budget);
    for (int64_t goal = budget;;) {
        p->train = training_step(of, p->level);
        const int64_t excess = finish_step(of, p->train, budget) - budget;
        if (excess <= 0)
            return true;
        if (p->level == p->levels)
            return refuse_budget(of, p->train, budget, e);
        step_destroy(p->train);
        goal -= excess;
        p->level = lowest_level(of, p->level + 1, goal);
    }
}

static bool make_training_step(const ingredients *of, int64_t available, plan *p, error *e) {
    const config_shard *s = &of->config->shard;
    if (s->recompute == RECOMPUTE_MEMORY)
        return recompute_for_memory(of, s->memory > 0 ? s->memory : available, p, e);
    p->train = training_step(of, 0);
    finish_step(of, p->train, available);
    return true;
}

static void make_validation_step(const ingredients *of, int64_t available, plan *p) {
    p->validation = validation_step(of);
    finish_step(of, p->validation, available);
}

/* The arena holds the larger of the two programs with its workspace. */
static int64_t arena_of(const ingredients *of, const step *s) {
    return s == NULL ? 0 : s->program->arena_bytes + workspace_of(of, s->program);
}

/* ---- limits ---- */

/* A longer list takes gigabytes and minutes on the host before the first step. */
enum { OPERATIONS_MOST = 1 << 21 };

/* What backward and recomputation add to the forward, at most: operations, and bytes with all that is gathered. */
static const double OPERATIONS_FACTOR = 4, BYTES_FACTOR = 8;

/* Refused before anything is unrolled: what follows counts operations in 32 bits and bytes in 64. */
static bool check_size(const ingredients *of, error *e) {
    const double passes = (double)of->plan->passes;
    const double operations = OPERATIONS_FACTOR * of->forward->operation_count;
    double bytes = 0;
    for (tensor_id t = 0; t < of->forward->tensor_count; t++)
        bytes += (double)of->forward->tensors[t].bytes;
    if (passes * operations > OPERATIONS_MOST)
        return config_refuse(of->config, &of->config->train.global_batch, e,
                             "takes %.0f passes a step, of about %.0f operations each; a step may have %d in all; a "
                             "larger micro_batch or more ranks make fewer passes",
                             passes, operations, OPERATIONS_MOST);
    if (passes * bytes * BYTES_FACTOR >= 0x1p62)
        return config_refuse(of->config, &of->config->train.micro_batch, e,
                             "a step on sequences of %lld tokens would need more memory than 64 bits can count",
                             (long long)of->config->train.sequence);
    return true;
}

/* ---- the plan ---- */

/* Whole gradients are stored in bf16 only where they are sent so and computed with so: they take less memory then, and
 * gain nothing by being rounded later. */
static precision_settings precision_of(const config *c) {
    static const dtype storages[] = {
        [CONFIG_FP32] = DTYPE_F32, [CONFIG_TF32] = DTYPE_F32, [CONFIG_BF16] = DTYPE_BF16, [CONFIG_FP16] = DTYPE_F16};
    const config_precision *p = &c->precision;
    precision_settings made = {.storage = storages[p->compute], .tf32 = p->compute == CONFIG_TF32};
    made.wire = p->communicate == CONFIG_COMMUNICATE_BF16 ? DTYPE_BF16 : DTYPE_F32;
    if (c->shard.group > 1 && made.wire == made.storage)
        made.gradient = made.storage;
    if (made.storage == DTYPE_F16) {
        const bool dynamic = p->loss_scale == 0;
        made.loss_scale = dynamic ? LOSS_SCALE_FIRST : p->loss_scale;
        made.loss_scale_interval = dynamic ? LOSS_SCALE_INTERVAL : 0;
    }
    return made;
}

static schedule_settings schedule_of(const config *c, const world *w, const plan *p, bool trains) {
    return (schedule_settings){.ranks = w->size,
                               .passes = p->passes,
                               .prefetch = (int)c->shard.prefetch,
                               .keep_gathered = c->shard.keep_gathered == CONFIG_YES,
                               .reduce_each = c->shard.reduce_every == CONFIG_EACH,
                               .reproducible = c->shard.reduce == CONFIG_REPRODUCIBLE,
                               .optimizer = trains,
                               .precision = p->precision};
}

static bool make_safe(step *s, error *e) {
    if (s == NULL)
        return true;
    waits_derive(s->program);
    return verify(s->program, e);
}

bool plan_create(const config *c, const model_shape *shape, const world *w, device *d, plan_wishes wishes,
                 int64_t budget, plan **created, error *e) {
    plan *p = memory_allocate(1, sizeof *p);
    const int group = (int)c->shard.group;
    p->mesh = (mesh){.rank = w->rank, .ranks = w->size, .group_size = group};
    p->model = model_create(shape, c->shard.unit);
    p->precision = precision_of(c);
    p->layout = flat_layout_create(&p->model->list, group, w->rank % group);
    if (wishes.train && c->output.checkpoint_every > 0 && c->output.checkpoint_background == CONFIG_YES)
        p->copy_bytes = checkpoint_copy_bytes(&p->model->list, p->layout);
    if (d->functions->capacity(d).total == 0) /* the arena is in the host's memory, too */
        budget = maximum(0, budget - p->copy_bytes);
    p->passes = c->train.global_batch / (c->train.micro_batch * w->size);
    program *forward = model_forward(p->model, c->train.micro_batch, c->train.sequence, HEAD_LOSS, &p->precision);
    const ingredients of = {.plan = p,
                            .config = c,
                            .world = w,
                            .device = d,
                            .forward = forward,
                            .schedule = schedule_of(c, w, p, wishes.train)};
    bool good = check_size(&of, e) && (!wishes.train || make_training_step(&of, budget, p, e));
    if (good && wishes.validation)
        make_validation_step(&of, budget, p);
    program_destroy(forward);
    good = good && make_safe(p->train, e) && make_safe(p->validation, e);
    p->arena_bytes = maximum(arena_of(&of, p->train), arena_of(&of, p->validation));
    check(p->train == NULL || p->validation == NULL ||
              p->train->program->persistent_bytes == p->validation->program->persistent_bytes,
          "training and validation disagree on persistent tensors");
    if (!good) {
        plan_destroy(p);
        return false;
    }
    *created = p;
    return true;
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
                          .timeout_seconds = c->shard.timeout,
                          .timed = c->output.trace == CONFIG_YES,
                          .replay = c->device.graph == CONFIG_YES};
}
