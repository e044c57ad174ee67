/* Whether a checkpoint is what its manifest says. */
#include "engine/checked.h"
#include "shard/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- files ---- */

static const checkpoint_file *find_file(const checkpoint_manifest *m, const char *name) {
    for (int32_t f = 0; f < m->file_count; f++)
        if (strcmp(m->files[f].name, name) == 0)
            return &m->files[f];
    return NULL;
}

static bool check_length(const checkpoint_file *f, const char *folder, error *e) {
    char *path = memory_format("%s/%s", folder, f->name);
    struct stat status;
    bool good = stat(path, &status) == 0 ||
                error_set(e, EXIT_MODEL,
                          "%s: cannot open: %s; the manifest names it: restore it, or go on from an older checkpoint",
                          path, strerror(errno));
    if (good && (!S_ISREG(status.st_mode) || status.st_size != f->bytes))
        good = error_set(e, EXIT_MODEL, "%s: has %lld bytes; the manifest says %lld; " CHECKPOINT_DAMAGED, path,
                         (long long)status.st_size, (long long)f->bytes);
    free(path);
    return good;
}

static bool check_strays(const checkpoint_manifest *m, const char *path, error *e) {
    DIR *folder = opendir(path);
    if (folder == NULL)
        return error_set(e, EXIT_MODEL, "%s: cannot open: %s", path, strerror(errno));
    bool good = true;
    for (struct dirent *entry; good && (entry = readdir(folder)) != NULL;) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && strcmp(name, CHECKPOINT_MANIFEST_NAME) != 0 &&
            find_file(m, name) == NULL)
            good = error_set(e, EXIT_MODEL, "%s/%s: does not belong to the checkpoint; move it away", path, name);
    }
    closedir(folder);
    return good;
}

bool checkpoint_check_files(const checkpoint_manifest *m, const char *path, error *e) {
    for (int32_t f = 0; f < m->file_count; f++)
        if (!check_length(&m->files[f], path, e))
            return false;
    return check_strays(m, path, e);
}

/* ---- parameters ---- */

#define USE_ITS_MODEL "; use the model that it was saved with, or another checkpoint"

bool checkpoint_check_parameters(const checkpoint_manifest *m, const char *path, const parameter_list *list, error *e) {
    for (int32_t i = 0; i < list->count; i++) {
        const parameter *p = &list->items[i];
        const checkpoint_tensor *t = checkpoint_find(m, p->name);
        if (t == NULL)
            return error_set(e, EXIT_MODEL, "%s: holds no tensor %s, which the model has" USE_ITS_MODEL, path, p->name);
        if (t->shape[0] != p->shape[0] || t->shape[1] != p->shape[1] || t->dimensions != p->dimensions)
            return error_set(e, EXIT_MODEL, "%s: tensor %s is %lld x %lld; the model's is %lld x %lld" USE_ITS_MODEL,
                             path, p->name, (long long)t->shape[0], (long long)t->shape[1], (long long)p->shape[0],
                             (long long)p->shape[1]);
    }
    if (m->tensor_count != list->count)
        return error_set(e, EXIT_MODEL, "%s: holds %d tensors; the model has %d" USE_ITS_MODEL, path,
                         (int)m->tensor_count, (int)list->count);
    return true;
}
