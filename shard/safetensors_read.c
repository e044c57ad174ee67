/* Reading values, and the tensors of a folder of several files. */
#include "engine/checked.h"
#include "engine/device/half.h"
#include "shard/file.h"
#include "shard/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static void widen_bf16(const void *from, float *to, int64_t count) {
    const uint16_t *bits = from;
    for (int64_t i = 0; i < count; i++)
        to[i] = float_from_bf16(bits[i]);
}

static void widen_f16(const void *from, float *to, int64_t count) {
    const uint16_t *bits = from;
    for (int64_t i = 0; i < count; i++)
        to[i] = float_from_f16(bits[i]);
}

static void copy_f32(const void *from, float *to, int64_t count) {
    memcpy(to, from, (size_t)count * sizeof *to);
}

static void narrow_f64(const void *from, float *to, int64_t count) {
    const double *values = from;
    for (int64_t i = 0; i < count; i++)
        to[i] = (float)values[i];
}

typedef struct conversion {
    const char *type;
    int64_t bytes; /* of an element */
    void (*convert)(const void *from, float *to, int64_t count);
} conversion;

static const conversion *find_conversion(const char *type) {
    static const conversion conversions[] = {
        {"F32", 4, copy_f32}, {"BF16", 2, widen_bf16}, {"F16", 2, widen_f16}, {"F64", 8, narrow_f64}};
    for (size_t c = 0; c < sizeof conversions / sizeof conversions[0]; c++)
        if (strcmp(type, conversions[c].type) == 0)
            return &conversions[c];
    return NULL;
}

bool safetensors_is_float(const safetensors_entry *entry) {
    return find_conversion(entry->type) != NULL;
}

bool safetensors_read(const safetensors_file *file, const safetensors_entry *entry, int64_t first, int64_t count,
                      float *values, error *e) {
    const conversion *how = find_conversion(entry->type);
    check(how != NULL, "tensor %s is %s", entry->name, entry->type);
    check(first >= 0 && count >= 0 && first <= entry->elements && count <= entry->elements - first,
          "tensor %s has %lld elements, asked for %lld from %lld", entry->name, (long long)entry->elements,
          (long long)count, (long long)first);
    double piece[8192]; /* aligned for any type */
    int64_t piece_elements = (int64_t)sizeof piece / how->bytes;
    for (int64_t done = 0; done < count; done += piece_elements) {
        int64_t elements = minimum(piece_elements, count - done);
        int64_t position = entry->position + (first + done) * how->bytes;
        if (!file_read_at(file->descriptor, file->path, piece, (size_t)(elements * how->bytes), position, e))
            return false;
        how->convert(piece, values + done, elements);
    }
    return true;
}

static int by_name(const void *left, const void *right) {
    return strcmp(((const safetensors_location *)left)->name, ((const safetensors_location *)right)->name);
}

static bool open_file(safetensors_folder *f, const char *path, error *e) {
    f->files = memory_grow(f->files, (size_t)f->file_count + 1, sizeof *f->files);
    if (!safetensors_open(path, &f->files[f->file_count], e))
        return false;
    f->file_count++;
    return true;
}

static bool open_single(safetensors_folder *f, error *e) {
    if (!open_file(f, f->path, e))
        return false;
    const safetensors_file *file = f->files[0];
    f->tensors = memory_allocate((size_t)file->count, sizeof *f->tensors);
    f->count = file->count;
    for (int32_t i = 0; i < file->count; i++) /* already sorted by name */
        f->tensors[i] = (safetensors_location){file->entries[i].name, file, &file->entries[i]};
    return true;
}

/* The file of this name among those that are open, opened if need be. The index must not lead out of its folder. */
static const safetensors_file *indexed_file(safetensors_folder *f, const char *folder, const char *name, error *e) {
    if (strchr(name, '/') != NULL || name[0] == '.') {
        error_set(e, EXIT_MODEL, "%s: weight_map: \"%s\": expected the name of a file in the same folder", f->path,
                  name);
        return NULL;
    }
    char *path = memory_format("%s/%s", folder, name);
    const safetensors_file *found = NULL;
    for (int32_t i = 0; i < f->file_count && found == NULL; i++)
        if (strcmp(f->files[i]->path, path) == 0)
            found = f->files[i];
    if (found == NULL && open_file(f, path, e))
        found = f->files[f->file_count - 1];
    free(path);
    return found;
}

static bool open_map(safetensors_folder *f, const char *folder, const json_t *map, error *e) {
    if (!json_is_object(map))
        return error_set(e, EXIT_MODEL, "%s: expected \"weight_map\" to be an object of tensor names and file names",
                         f->path);
    f->tensors = memory_allocate(json_object_size(map), sizeof *f->tensors);
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)map, name, value) {
        if (!json_is_string(value))
            return error_set(e, EXIT_MODEL, "%s: weight_map: tensor %s: expected a file name", f->path, name);
        const safetensors_file *file = indexed_file(f, folder, json_string_value(value), e);
        if (file == NULL)
            return false;
        const safetensors_entry *entry = safetensors_find(file, name);
        if (entry == NULL)
            return error_set(e, EXIT_MODEL, "%s: no tensor %s, which %s places there", file->path, name, f->path);
        f->tensors[f->count++] = (safetensors_location){entry->name, file, entry};
    }
    qsort(f->tensors, (size_t)f->count, sizeof *f->tensors, by_name);
    return true;
}

bool safetensors_open_folder(const char *folder, safetensors_folder **opened, error *e) {
    safetensors_folder *f = memory_allocate(1, sizeof *f);
    bool fine = false;
    f->path = memory_format("%s/model.safetensors", folder);
    if (file_exists(f->path))
        fine = open_single(f, e);
    else {
        free(f->path);
        f->path = memory_format("%s/model.safetensors.index.json", folder);
        json_t *index = file_exists(f->path) ? file_load_json(f->path, e) : NULL;
        if (index != NULL)
            fine = open_map(f, folder, json_object_get(index, "weight_map"), e);
        else
            error_set(e, EXIT_MODEL, "%s: found neither model.safetensors nor model.safetensors.index.json", folder);
        json_decref(index);
    }
    if (!fine) {
        safetensors_close_folder(f);
        f = NULL;
    }
    *opened = f;
    return fine;
}

void safetensors_close_folder(safetensors_folder *f) {
    if (f == NULL)
        return;
    for (int32_t i = 0; i < f->file_count; i++)
        safetensors_close(f->files[i]);
    free(f->files);
    free(f->tensors);
    free(f->path);
    free(f);
}

const safetensors_location *safetensors_locate(const safetensors_folder *f, const char *name) {
    safetensors_location key = {.name = name};
    return bsearch(&key, f->tensors, (size_t)f->count, sizeof key, by_name);
}
