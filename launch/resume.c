#include "launch/resume.h"

#include "engine/checked.h"
#include "launch/training_state.h"
#include "shard/checkpoint_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *resume_folder(const config *c) {
    return memory_format("%s/checkpoints", c->output.folder);
}

typedef struct search {
    const config *config;
    world *world;
    const plan *plan;
    const data *data;
    run *run;
} search;

/* ---- one candidate ---- */

/* Rank 0 reads the manifest and gives it to all, so that nobody decides on other words. */
static bool share_manifest(world *w, const char *path, checkpoint_manifest **shared, error *e) {
    char *text = NULL;
    size_t bytes = 0;
    checkpoint_manifest *m = NULL;
    if (w->rank == 0 && checkpoint_manifest_load(path, &text, &bytes, &m, e))
        checkpoint_check_files(m, path, e);
    bool good = world_agree_and_go_on(w, e);
    if (good) {
        world_broadcast(w, &bytes, sizeof bytes, 0);
        text = w->rank == 0 ? text : memory_allocate(bytes + 1, 1);
        world_broadcast(w, text, bytes, 0);
        if (w->rank > 0)
            checkpoint_manifest_parse(text, bytes, path, &m, e);
        good = world_agree_and_go_on(w, e);
    }
    free(m != NULL || w->rank > 0 ? text : NULL); /* a failed load has freed it */
    if (good)
        *shared = m;
    else
        checkpoint_manifest_destroy(m);
    return good;
}

/* ---- whether it fits ---- */

static bool check_steps(const resume *r, const config *c, error *e) {
    if (r->at.step <= c->train.steps)
        return true;
    return config_refuse(c, &c->train.steps, e,
                         "the checkpoint %s is of step %lld already; give more steps than that, or another "
                         "[output] folder",
                         r->path, (long long)r->at.step);
}

static bool check_fit(resume *r, const search *s, error *e) {
    const config *c = s->config;
    const json_t *saved = r->manifest->training;
    if (s->world->rank == 0) {
        json_t *present = training_record(c, &s->plan->model->shape, s->data, s->world->size, (position){0});
        r->changes = training_record_changes(saved, present);
        training_record_accept(saved, present, c, r->path, e);
        json_decref(present);
    }
    return e->code == 0 && training_record_position(saved, r->manifest->step, c, r->path, &r->at, e) &&
           checkpoint_check_parameters(r->manifest, r->path, &s->plan->model->list, e) && check_steps(r, c, e);
}

/* ---- choosing ---- */

/* The steps of the checkpoints that there are, newest first, as rank 0 sees them. */
static bool share_steps(world *w, const char *folder, int64_t **steps, size_t *count, error *e) {
    *steps = NULL;
    *count = 0;
    if (w->rank == 0)
        checkpoint_steps(folder, steps, count, e);
    if (!world_agree(w, e))
        return false;
    world_broadcast(w, count, sizeof *count, 0);
    if (w->rank > 0)
        *steps = memory_allocate(*count, sizeof **steps);
    if (*count > 0)
        world_broadcast(w, *steps, *count * sizeof **steps, 0);
    return true;
}

/* The checkpoint at found->path, brought into the run. False with *damage set: it is not whole; with *e set: it does
 * not fit, which is for the user to resolve. */
static bool load(const search *s, resume *found, error *damage, error *e) {
    if (!share_manifest(s->world, found->path, &found->manifest, damage))
        return false;
    check_fit(found, s, e);
    if (!world_agree(s->world, e))
        return false;
    training_state_write_loss_scale(s->plan, s->run, &found->at);
    training_state_restore(s->plan, s->run, found->manifest, found->path, damage);
    return world_agree_and_go_on(s->world, damage);
}

static bool is_of_step(const resume *found, int64_t step, error *damage) {
    return found->manifest->step == step || error_set(damage, EXIT_MODEL,
                                                      "%s: its manifest is of step %lld; give the "
                                                      "folder the name that it had",
                                                      found->path, (long long)found->manifest->step);
}

/* Passes over what is damaged, with a warning. */
static bool load_step(const search *s, const char *folder, int64_t step, resume *found, error *e) {
    error damage = {0};
    found->path = checkpoint_path(folder, step);
    if (load(s, found, &damage, e) && is_of_step(found, step, &damage))
        return true;
    if (e->code == 0 && s->world->rank == 0)
        fprintf(stderr, "fsdp_train: warning: checkpoint passed over: %s\n", damage.message);
    resume_release(found);
    return false;
}

/* The newest whole checkpoint; found->manifest stays NULL when there is none at all. */
static bool load_newest(const search *s, resume *found, error *e) {
    char *folder = resume_folder(s->config);
    int64_t *steps;
    size_t count;
    bool good = share_steps(s->world, folder, &steps, &count, e);
    for (size_t i = 0; good && i < count && !load_step(s, folder, steps[i], found, e); i++)
        good = e->code == 0;
    if (good && count > 0 && found->manifest == NULL) {
        error_set(e, EXIT_MODEL, "%s: no checkpoint is whole, see the warnings; [output] resume = no starts over",
                  folder);
        good = world_agree(s->world, e);
    }
    free(steps);
    free(folder);
    return good;
}

static bool load_given(const search *s, resume *found, error *e) {
    error damage = {0};
    found->path = memory_copy_string(s->config->output.resume);
    if (load(s, found, &damage, e))
        return true;
    if (e->code == 0)
        *e = damage;
    return false;
}

bool resume_find(const config *c, world *w, const plan *p, const data *d, run *r, resume *found, error *e) {
    const search s = {c, w, p, d, r};
    *found = (resume){0};
    if (strcmp(c->output.resume, "auto") == 0)
        load_newest(&s, found, e);
    else if (strcmp(c->output.resume, "no") != 0)
        load_given(&s, found, e);
    if (e->code != 0)
        resume_release(found);
    return e->code == 0;
}

void resume_release(resume *r) {
    checkpoint_manifest_destroy(r->manifest);
    json_decref(r->changes);
    free(r->path);
    *r = (resume){0};
}
