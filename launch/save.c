#include "launch/save.h"

#include "engine/checked.h"
#include "launch/background.h"
#include "launch/resume.h"
#include "launch/training_state.h"
#include "launch/weights.h"

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

/* ---- what a run holds for its checkpoints ---- */

struct checkpoints {
    char *folder;
    background *thread; /* NULL: checkpoints are not written in the background */
    void *copy;         /* NULL on ranks that write nothing */
    training_state state;
    checkpoint_writing *writing; /* NULL: none is on its way */
    int64_t step;                /* its step */
    double began, stall;         /* when, and seconds since then that training stood still */
};

/* Touched before training, so that the first checkpoint does not wait for the system to find the memory: an ordinary
 * device's zeros may be there without. */
static bool allocate_copy(const trainer *t, checkpoints *c, error *e) {
    const size_t bytes = (size_t)t->plan->copy_bytes;
    error why = {0};
    if (t->world->rank >= t->plan->layout->group_size)
        return true;
    if (!t->device->functions->allocate_host(t->device, bytes, &c->copy, &why))
        return error_set_own(
            e, EXIT_USAGE,
            "no memory for the copy of the state that is written to checkpoints: %.1800s; set [output] "
            "checkpoint_background = no",
            why.message);
    memset(c->copy, 0xff, bytes);
    return true;
}

bool save_open(trainer *t, error *e) {
    checkpoints *c = t->checkpoints = memory_allocate(1, sizeof *c);
    c->folder = resume_folder(t->config);
    c->state = (training_state){t->plan->train, t->train};
    return t->plan->copy_bytes == 0 || (allocate_copy(t, c, e) && background_open(&c->thread, e));
}

void save_close(trainer *t) {
    checkpoints *c = t->checkpoints;
    if (c == NULL)
        return;
    background_close(c->thread);
    if (c->copy != NULL)
        t->device->functions->release_host(t->device, c->copy);
    free(c->folder);
    free(c);
    t->checkpoints = NULL;
}

/* ---- the end of one ---- */

static void warn(const trainer *t, const error *e) {
    if (t->world->rank == 0 && e->code != 0)
        fprintf(stderr, "fsdp_train: warning: %s\n", e->message);
}

static bool fail(trainer *t, int64_t step, const error *why, error *e) {
    error told = {0};
    error_set(&told, why->code, "no checkpoint of step %lld: %.1800s", (long long)step, why->message);
    if (t->config->output.checkpoint_failure == CONFIG_FAILURE_STOP)
        return error_set(e, told.code, "%s", told.message);
    warn(t, &told);
    t->unsaved = true;
    return true;
}

static bool end(trainer *t, const error *why, error *e) {
    checkpoints *c = t->checkpoints;
    const double now = seconds_now();
    error left;
    checkpoint_end(c->writing, &left);
    c->writing = NULL;
    if (why->code != 0)
        return fail(t, c->step, why, e);
    warn(t, &left); /* the new one stands, so that an older one that cannot be removed is no failure of it */
    t->saved = c->step;
    t->unsaved = false;
    return t->world->rank > 0 || metrics_checkpoint(t->metrics, c->step, now - c->began, c->stall, e);
}

/* ---- its parts ---- */

static void work(void *writing) {
    checkpoint_work(writing);
}

static void begin(trainer *t, const position *at, bool in_background) {
    checkpoints *c = t->checkpoints;
    const checkpoint_state state = training_state_of(t->plan, &c->state);
    checkpoint_facts facts = {
        .step = at->step, .updates = training_state_updates(t->plan, t->train), .keep = t->config->output.keep};
    c->step = at->step;
    c->began = seconds_now();
    position here = *at;
    training_state_read_loss_scale(t->plan, t->train, &here);
    if (t->world->rank == 0)
        facts.training = training_record(t->config, &t->plan->model->shape, t->data, t->world->size, here);
    c->writing = checkpoint_begin(&state, t->world, c->folder, &facts, in_background ? c->copy : NULL);
    json_decref(facts.training);
    if (in_background)
        background_start(c->thread, work, c->writing);
    c->stall = seconds_now() - c->began;
}

/* All in the foreground. */
static bool write_now(trainer *t, const position *at, error *e) {
    checkpoints *c = t->checkpoints;
    error why = {0};
    begin(t, at, false);
    do
        checkpoint_work(c->writing);
    while (checkpoint_meet(c->writing, &why));
    c->stall = seconds_now() - c->began;
    return end(t, &why, e);
}

bool save_idle(const trainer *t) {
    return t->checkpoints->writing == NULL || background_idle(t->checkpoints->thread);
}

bool save_advance(trainer *t, error *e) {
    checkpoints *c = t->checkpoints;
    error why = {0};
    if (c->writing == NULL)
        return true;
    const double start = seconds_now();
    const bool more = checkpoint_meet(c->writing, &why);
    if (more)
        background_start(c->thread, work, c->writing);
    c->stall += seconds_now() - start;
    return more || end(t, &why, e);
}

bool save_finish(trainer *t, error *e) {
    checkpoints *c = t->checkpoints;
    bool good = true;
    while (good && c->writing != NULL) {
        const double start = seconds_now();
        background_wait(c->thread);
        c->stall += seconds_now() - start;
        good = save_advance(t, e);
    }
    return good;
}

bool save_checkpoint(trainer *t, const position *at, bool wait, error *e) {
    if (!save_finish(t, e))
        return false;
    if (at->step == t->saved)
        return true;
    /* If only rank 0 fails, the others are on their way into the checkpoint: it takes part, and fails behind it. */
    error of_checkpoint = {0};
    const bool noted = t->world->rank > 0 || metrics_checkpoint_started(t->metrics, at->step, e);
    if (wait || t->checkpoints->thread == NULL)
        return write_now(t, at, noted ? e : &of_checkpoint) && noted;
    begin(t, at, true);
    return noted;
}

void save_abandon(trainer *t) {
    checkpoints *c = t->checkpoints;
    if (c->writing == NULL)
        return;
    error left;
    checkpoint_abandon(c->writing);
    background_wait(c->thread);
    checkpoint_end(c->writing, &left);
    c->writing = NULL;
}
