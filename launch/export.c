#include "launch/export.h"

#include "engine/checked.h"
#include "launch/training_record.h"
#include "models/huggingface.h"
#include "shard/checkpoint_folder.h"
#include "shard/file.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 20 }; /* elements moved at a time */

static const float LARGEST_F16 = 65504;

bool export_open(const char *path, exported *opened, error *e) {
    char *text;
    size_t bytes;
    *opened = (exported){.path = path};
    if (!checkpoint_manifest_load(path, &text, &bytes, &opened->manifest, e))
        return false;
    free(text);
    return checkpoint_check_files(opened->manifest, path, e);
}

void export_close(exported *x) {
    checkpoint_manifest_destroy(x->manifest);
    x->manifest = NULL;
}

bool export_verify(const exported *x, error *e) {
    return checkpoint_check_chunks(x->manifest, x->path, e);
}

/* ---- listing ---- */

void export_list(const exported *x, FILE *to) {
    const checkpoint_manifest *m = x->manifest;
    int64_t elements = 0, bytes = 0;
    int32_t unit = -1;
    for (int32_t t = 0; t < m->tensor_count; t++)
        elements += checkpoint_elements(&m->tensors[t]);
    for (int32_t f = 0; f < m->file_count; f++)
        bytes += m->files[f].bytes;
    fprintf(to, "step         %lld, %lld updates\n", (long long)m->step, (long long)m->updates);
    fprintf(to, "parameters   %lld in %d tensors of %d units, each with two moments, fp32\n", (long long)elements,
            (int)m->tensor_count, (int)m->unit_count);
    fprintf(to, "files        %d, %lld bytes\n", (int)m->file_count, (long long)bytes);
    for (int32_t t = 0; t < m->tensor_count; t++) {
        const checkpoint_tensor *of = &m->tensors[t];
        if (of->unit != unit)
            fprintf(to, "%s\n", m->units[unit = of->unit].name);
        fprintf(to, "    %-36s %lld", of->name, (long long)of->shape[0]);
        if (of->dimensions == 2)
            fprintf(to, " x %lld", (long long)of->shape[1]);
        fprintf(to, ", %d piece%s\n", (int)of->piece_count, of->piece_count == 1 ? "" : "s");
    }
}

/* ---- writing ---- */

/* Replacing takes the folder's files away, so that they must be those of a model, or none. */
static bool check_target(const char *path, error *e) {
    DIR *folder = opendir(path);
    if (folder == NULL)
        return true; /* absent; what else there may be, the writer says */
    bool empty = true, model = false;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        empty = empty && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0);
        model = model || strcmp(entry->d_name, "config.json") == 0;
    }
    closedir(folder);
    return empty || model ||
           error_set(e, EXIT_USAGE, "%s: holds files and is no model folder; give a new folder, or an empty one", path);
}

static bool check_range(const float *values, int64_t count, const char *name, error *e) {
    for (int64_t i = 0; i < count; i++)
        if (isfinite(values[i]) && fabsf(values[i]) > LARGEST_F16)
            return error_set(e, EXIT_MODEL, "tensor %s holds %g, which fp16 cannot; use --dtype bf16", name,
                             (double)values[i]);
    return true;
}

static bool copy_weights(const exported *x, const model *m, huggingface_writer *w, dtype type, error *e) {
    checkpoint_reader *r = checkpoint_reader_open(x->manifest, x->path);
    float *values = memory_allocate(PIECE, sizeof *values);
    bool good = true;
    for (int32_t i = 0; good && i < m->list.count; i++) {
        const checkpoint_tensor *t = checkpoint_find(x->manifest, m->list.items[i].name);
        for (int64_t done = 0; good && done < checkpoint_elements(t); done += PIECE) {
            const int64_t count = minimum(PIECE, checkpoint_elements(t) - done);
            good = checkpoint_read(r, t, STATE_WEIGHTS, done, count, values, e) &&
                   (type != DTYPE_F16 || check_range(values, count, t->name, e)) &&
                   huggingface_write(w, i, done, count, values, e);
        }
    }
    free(values);
    checkpoint_reader_close(r);
    return good;
}

/* The folder that the run started from, whose tokenizer goes with the model; NULL: none, or no longer there. */
static const char *companion_folder(const exported *x, char **warning) {
    const json_t *config = json_object_get(x->manifest->training, "config");
    const char *from = json_string_value(json_object_get(json_object_get(config, "model"), "from"));
    if (from == NULL)
        return NULL;
    char *path = memory_format("%s/config.json", from);
    const bool there = file_exists(path);
    free(path);
    if (!there)
        *warning =
            memory_format("the run started from %s, which is not here: the model goes without its tokenizer", from);
    return there ? from : NULL;
}

bool export_write(const exported *x, const char *folder, dtype type, char **warning, error *e) {
    model_shape shape;
    huggingface_writer *w = NULL;
    *warning = NULL;
    if (!training_record_shape(x->manifest->training, x->path, &shape, e) || !check_target(folder, e))
        return false;
    model *m = model_create(&shape, 1);
    bool good = checkpoint_check_parameters(x->manifest, x->path, &m->list, e) &&
                huggingface_writer_open(folder, &shape, &m->list, type, companion_folder(x, warning), &w, e);
    if (good && copy_weights(x, m, w, type, e))
        good = huggingface_writer_finish(w, e);
    else {
        huggingface_writer_abandon(w);
        good = false;
    }
    model_destroy(m);
    return good;
}
