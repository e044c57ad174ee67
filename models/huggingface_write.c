/* A model folder, written beside its final name and renamed into place when it is complete and on the disk. */
#include "engine/checked.h"
#include "models/huggingface.h"
#include "shard/file.h"
#include "shard/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct huggingface_writer {
    const parameter_list *list;
    char *final, *temporary, *aside, *parent;
    int32_t *first_tensor; /* [list->count]: tensor of each parameter's first part */
    safetensors_writer *weights;
};

/* What belongs to a model and is no weight: copied from the folder that the model came from. */
static const char *const companions[] = {"generation_config.json",
                                         "tokenizer.json",
                                         "tokenizer_config.json",
                                         "special_tokens_map.json",
                                         "added_tokens.json",
                                         "vocab.json",
                                         "merges.txt",
                                         "vocab.txt",
                                         "tokenizer.model",
                                         "spiece.model",
                                         "chat_template.jinja",
                                         "chat_template.json"};

static bool failed(const char *what, const char *path, error *e) {
    return error_set_own(e, EXIT_MODEL, "%s: cannot %s: %s", path, what, strerror(errno));
}

/* The folder behind a symbolic link is the one to replace, so that the link survives. */
static void set_names(huggingface_writer *w, const char *folder) {
    w->final = memory_copy_string(folder);
    for (size_t length = strlen(w->final); length > 1 && w->final[length - 1] == '/'; length--)
        w->final[length - 1] = '\0';
    struct stat status;
    if (lstat(w->final, &status) == 0 && S_ISLNK(status.st_mode)) {
        char *real = realpath(w->final, NULL);
        if (real != NULL) {
            free(w->final);
            w->final = real;
        }
    }
    w->temporary = memory_format("%s.incomplete", w->final);
    w->aside = memory_format("%s.replaced", w->final);
    char *copy = memory_copy_string(w->final);
    w->parent = memory_copy_string(dirname(copy));
    free(copy);
}

/* Undoes what a writer left that was killed: a half-written folder, or an older one that had stepped aside. */
static bool clear_leftovers(const huggingface_writer *w, error *e) {
    if (!file_exists(w->final) && file_exists(w->aside) && rename(w->aside, w->final) != 0)
        return failed("rename", w->aside, e);
    return folder_remove(w->temporary, e) && folder_remove(w->aside, e);
}

/* An existing folder is replaced as a whole, so it must hold files only, like every model folder. */
static bool check_replaceable(const char *folder, error *e) {
    struct stat status;
    if (stat(folder, &status) != 0)
        return errno == ENOENT || failed("look at", folder, e);
    if (!S_ISDIR(status.st_mode))
        return error_set_own(e, EXIT_MODEL, "%s: expected a folder; move the file away", folder);
    char *inner = folder_find_folder(folder);
    if (inner != NULL)
        error_set_own(e, EXIT_MODEL, "%s: holds a folder, %s, that replacing it would remove; move it away", folder,
                      inner);
    free(inner);
    return e->code == 0;
}

static bool begin_weights(huggingface_writer *w, dtype type, error *e) {
    const parameter_list *list = w->list;
    safetensors_tensor *tensors = memory_allocate((size_t)list->count * PARAMETER_PARTS, sizeof *tensors);
    int32_t count = 0;
    for (int32_t i = 0; i < list->count; i++) {
        const parameter *p = &list->items[i];
        w->first_tensor[i] = count;
        for (int part = 0; part < p->part_count; part++)
            tensors[count++] = (safetensors_tensor){
                .name = p->parts[part].name, .dimensions = p->dimensions, .shape = {p->parts[part].rows, p->shape[1]}};
    }
    char *path = memory_format("%s/model.safetensors", w->temporary);
    bool fine = safetensors_create(path, tensors, count, type, &w->weights, e);
    free(path);
    free(tensors);
    return fine;
}

static bool write_config(const huggingface_writer *w, const model_shape *shape, dtype type, const char *from,
                         error *e) {
    char *text = from != NULL ? huggingface_config_retyped(from, type, e) : huggingface_config(shape, type);
    char *path = memory_format("%s/config.json", w->temporary);
    bool fine = text != NULL && file_create(path, text, strlen(text), e);
    free(path);
    free(text);
    return fine;
}

static bool copy_companions(const huggingface_writer *w, const char *from, error *e) {
    bool fine = true;
    for (size_t c = 0; fine && c < sizeof companions / sizeof companions[0]; c++) {
        char *source = memory_format("%s/%s", from, companions[c]);
        char *target = memory_format("%s/%s", w->temporary, companions[c]);
        fine = !file_exists(source) || file_copy(source, target, e);
        free(source);
        free(target);
    }
    return fine;
}

bool huggingface_writer_open(const char *folder, const model_shape *shape, const parameter_list *list, dtype type,
                             const char *from, huggingface_writer **opened, error *e) {
    huggingface_writer *w = memory_allocate(1, sizeof *w);
    w->list = list;
    w->first_tensor = memory_allocate((size_t)list->count, sizeof *w->first_tensor);
    set_names(w, folder);
    bool fine = clear_leftovers(w, e) && check_replaceable(w->final, e) &&
                (mkdir(w->temporary, 0777) == 0 || failed("create", w->temporary, e)) &&
                write_config(w, shape, type, from, e) && (from == NULL || copy_companions(w, from, e)) &&
                begin_weights(w, type, e);
    if (!fine) {
        huggingface_writer_abandon(w);
        w = NULL;
    }
    *opened = w;
    return fine;
}

bool huggingface_write(huggingface_writer *w, int32_t index, int64_t first, int64_t count, const float *values,
                       error *e) {
    const parameter *p = &w->list->items[index];
    check(first >= 0 && count >= 0 && first <= parameter_elements(p) && count <= parameter_elements(p) - first,
          "%s: elements %lld + %lld", p->name, (long long)first, (long long)count);
    int64_t begin = 0; /* of the part, in elements of the parameter */
    for (int part = 0; part < p->part_count; part++) {
        int64_t end = begin + p->parts[part].rows * p->shape[1];
        int64_t from = maximum(first, begin), to = minimum(first + count, end);
        if (from < to && !safetensors_write(w->weights, w->first_tensor[index] + part, from - begin, to - from,
                                            values + (from - first), e))
            return false;
        begin = end;
    }
    return true;
}

/* Moves the temporary folder to the final name. An older folder is exchanged in one step where the file system can,
 * so that the name never misses; elsewhere it steps aside for a moment. */
static bool replace(const huggingface_writer *w, error *e) {
    if (!file_exists(w->final))
        return rename(w->temporary, w->final) == 0 || failed("rename into place", w->temporary, e);
    if (renameat2(AT_FDCWD, w->temporary, AT_FDCWD, w->final, RENAME_EXCHANGE) == 0)
        return folder_sync(w->parent, e) && folder_remove(w->temporary, e);
    if (errno != EINVAL && errno != ENOSYS)
        return failed("rename into place", w->temporary, e);
    if (rename(w->final, w->aside) != 0)
        return failed("rename", w->final, e);
    if (rename(w->temporary, w->final) != 0) {
        failed("rename into place", w->temporary, e);
        rename(w->aside, w->final); /* should this fail, too, the next writer does it */
        return false;
    }
    return folder_sync(w->parent, e) && folder_remove(w->aside, e);
}

static void release(huggingface_writer *w) {
    safetensors_abandon(w->weights);
    free(w->first_tensor);
    free(w->final);
    free(w->temporary);
    free(w->aside);
    free(w->parent);
    free(w);
}

bool huggingface_writer_finish(huggingface_writer *w, error *e) {
    bool fine = safetensors_finish(w->weights, e);
    w->weights = NULL;
    fine = fine && folder_sync(w->temporary, e) && replace(w, e) && folder_sync(w->parent, e);
    if (!fine) {
        huggingface_writer_abandon(w);
        return false;
    }
    release(w);
    return true;
}

void huggingface_writer_abandon(huggingface_writer *w) {
    if (w == NULL)
        return;
    error ignored = {0}; /* what made the caller abandon is what the user must know */
    folder_remove(w->temporary, &ignored);
    release(w);
}
