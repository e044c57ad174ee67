#include "launch/resume.h"

#include "engine/checked.h"
#include "shard/checkpoint_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *resume_folder(const config *c) {
    return memory_format("%s/checkpoints", c->output.folder);
}

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

/* Whether the checkpoint is whole. */
static bool inspect(world *w, const char *path, checkpoint_manifest **inspected, error *e) {
    checkpoint_manifest *m;
    if (!share_manifest(w, path, &m, e))
        return false;
    checkpoint_check_chunks(m, path, w->rank, w->size, e);
    if (!world_agree_and_go_on(w, e)) {
        checkpoint_manifest_destroy(m);
        return false;
    }
    *inspected = m;
    return true;
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

static bool try_step(world *w, const char *folder, int64_t step, resume *found) {
    error damage = {0};
    char *path = checkpoint_path(folder, step);
    if (inspect(w, path, &found->manifest, &damage) && found->manifest->step != step) {
        error_set(&damage, EXIT_MODEL, "%s: its manifest is of step %lld", path, (long long)found->manifest->step);
        checkpoint_manifest_destroy(found->manifest);
        found->manifest = NULL;
    }
    if (damage.code == 0) {
        found->path = path;
        return true;
    }
    if (w->rank == 0)
        fprintf(stderr, "fsdp_train: warning: checkpoint passed over: %s\n", damage.message);
    free(path);
    return false;
}

/* The newest whole checkpoint; found->manifest stays NULL when there is none at all. */
static bool choose_newest(const config *c, world *w, resume *found, error *e) {
    char *folder = resume_folder(c);
    int64_t *steps;
    size_t count;
    bool good = share_steps(w, folder, &steps, &count, e);
    for (size_t i = 0; good && i < count && !try_step(w, folder, steps[i], found); i++)
        ;
    if (good && count > 0 && found->manifest == NULL) {
        error_set(e, EXIT_MODEL, "%s: no checkpoint is whole, see the warnings; [output] resume = no starts over",
                  folder);
        good = world_agree(w, e);
    }
    free(steps);
    free(folder);
    return good;
}

static bool choose(const config *c, world *w, resume *found, error *e) {
    if (strcmp(c->output.resume, "no") == 0)
        return true;
    if (strcmp(c->output.resume, "auto") == 0)
        return choose_newest(c, w, found, e);
    found->path = memory_copy_string(c->output.resume);
    inspect(w, found->path, &found->manifest, e);
    return world_agree(w, e);
}

/* ---- whether it fits ---- */

static bool check_steps(const resume *r, const config *c, error *e) {
    if (r->at.step <= c->train.steps)
        return true;
    return config_refuse(c, &c->train.steps, e, "the checkpoint %s is of step %lld already", r->path,
                         (long long)r->at.step);
}

static bool check_fit(resume *r, const config *c, const plan *p, const data *d, int rank, int ranks, error *e) {
    const json_t *saved = r->manifest->training;
    if (rank == 0) {
        json_t *present = training_record(c, &p->model->shape, d, ranks, (position){0});
        r->changes = training_record_changes(saved, present);
        training_record_accept(saved, present, c, r->path, e);
        json_decref(present);
    }
    return e->code == 0 && training_record_position(saved, r->manifest->step, c, r->path, &r->at, e) &&
           checkpoint_check_parameters(r->manifest, r->path, &p->model->list, e) && check_steps(r, c, e);
}

bool resume_find(const config *c, world *w, const plan *p, const data *d, resume *found, error *e) {
    *found = (resume){0};
    if (choose(c, w, found, e) && found->manifest != NULL) {
        check_fit(found, c, p, d, w->rank, w->size, e);
        world_agree(w, e);
    }
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
