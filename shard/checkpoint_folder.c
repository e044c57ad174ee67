#include "shard/checkpoint_folder.h"

#include "engine/checked.h"
#include "shard/file.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char prefix[] = "step-";

char *checkpoint_path(const char *folder, int64_t step) {
    return memory_format("%s/%s%08lld", folder, prefix, (long long)step);
}

/* The step that a name stands for; -1: it is not that of a checkpoint. */
static int64_t step_of(const char *name, const char *suffix) {
    const size_t length = strlen(prefix);
    if (strncmp(name, prefix, length) != 0)
        return -1;
    const size_t digits = strspn(name + length, "0123456789");
    if (digits < 8 || digits > 18 || strcmp(name + length + digits, suffix) != 0)
        return -1;
    return strtoll(name + length, NULL, 10);
}

static int later_first(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

static bool find_steps(const char *folder, const char *suffix, int64_t **steps, size_t *count, error *e) {
    *steps = NULL;
    *count = 0;
    DIR *open = opendir(folder);
    if (open == NULL)
        return errno == ENOENT || error_set(e, EXIT_MODEL, "%s: cannot open: %s", folder, strerror(errno));
    for (struct dirent *entry; (entry = readdir(open)) != NULL;) {
        const int64_t step = step_of(entry->d_name, suffix);
        if (step < 0)
            continue;
        *steps = memory_grow(*steps, *count + 1, sizeof **steps);
        (*steps)[(*count)++] = step;
    }
    closedir(open);
    if (*count > 0)
        qsort(*steps, *count, sizeof **steps, later_first);
    return true;
}

bool checkpoint_steps(const char *folder, int64_t **steps, size_t *count, error *e) {
    return find_steps(folder, "", steps, count, e);
}

/* A checkpoint gives up its name before it loses its files, so that one with the name is whole at every moment. */
static bool remove_checkpoint(const char *path, const char *suffix, error *e) {
    char *name = memory_format("%s%s", path, suffix), *doomed = memory_format("%s%s", path, CHECKPOINT_INCOMPLETE);
    bool good = strcmp(name, doomed) == 0 || rename(name, doomed) == 0 ||
                error_set(e, EXIT_MODEL, "%s: cannot rename: %s", name, strerror(errno));
    good = good && folder_remove(doomed, e);
    free(doomed);
    free(name);
    return good;
}

/* Removes those of a suffix after the first `keep`, all that can be removed. */
static bool remove_beyond(const char *folder, const char *suffix, int64_t keep, error *e) {
    int64_t *steps;
    size_t count;
    bool good = find_steps(folder, suffix, &steps, &count, e);
    for (size_t i = (size_t)keep; i < count; i++) {
        char *path = checkpoint_path(folder, steps[i]);
        good &= remove_checkpoint(path, suffix, e);
        free(path);
    }
    free(steps);
    return good;
}

bool checkpoint_prune(const char *folder, int64_t keep, error *e) {
    const bool cleared = remove_beyond(folder, CHECKPOINT_INCOMPLETE, 0, e);
    return remove_beyond(folder, "", keep, e) && cleared;
}

static bool set_aside(const char *path, error *e) {
    char *name = memory_format("%s%s", path, CHECKPOINT_SUPERSEDED);
    for (int number = 2; file_exists(name); number++) {
        free(name);
        name = memory_format("%s%s-%d", path, CHECKPOINT_SUPERSEDED, number);
    }
    const bool good =
        rename(path, name) == 0 || error_set(e, EXIT_MODEL, "%s: cannot rename: %s", path, strerror(errno));
    free(name);
    return good;
}

bool checkpoint_supersede(const char *folder, int64_t step, int64_t *count, error *e) {
    int64_t *steps;
    size_t found;
    bool good = checkpoint_steps(folder, &steps, &found, e);
    *count = 0;
    for (size_t i = 0; good && i < found && steps[i] > step; i++) {
        char *path = checkpoint_path(folder, steps[i]);
        good = set_aside(path, e);
        *count += good;
        free(path);
    }
    free(steps);
    return good && (*count == 0 || folder_sync(folder, e));
}

bool checkpoint_manifest_load(const char *path, char **text, size_t *bytes, checkpoint_manifest **loaded, error *e) {
    char *name = memory_format("%s/%s", path, CHECKPOINT_MANIFEST_NAME);
    bool good = file_exists(name) || error_set(e, EXIT_MODEL,
                                               "%s: cannot open: %s; expected is a checkpoint, a folder like "
                                               "out/my/checkpoints/step-00000100",
                                               name, strerror(errno));
    good = good && file_load(name, text, bytes, e);
    if (good && !checkpoint_manifest_parse(*text, *bytes, name, loaded, e)) {
        free(*text);
        good = false;
    }
    free(name);
    return good;
}
