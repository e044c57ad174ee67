/* Weights of a model folder, by ranges of parameters. */
#include "engine/checked.h"
#include "models/huggingface.h"
#include "shard/safetensors.h"

#include <stdlib.h>
#include <string.h>

struct huggingface_reader {
    const parameter_list *list;
    safetensors_folder *folder;
    const safetensors_location *(*tensors)[PARAMETER_PARTS]; /* [list->count]: where each part's tensor is */
};

static const char prefix[] = "transformer.";

static const char *without_prefix(const char *name) {
    return strncmp(name, prefix, sizeof prefix - 1) == 0 ? name + sizeof prefix - 1 : name;
}

/* "[2, 3]"; freed by the caller. */
static char *shape_text(int dimensions, const int64_t *shape) {
    char *text = memory_copy_string("[");
    for (int i = 0; i < dimensions; i++) {
        char *longer = memory_format("%s%s%lld", text, i > 0 ? ", " : "", (long long)shape[i]);
        free(text);
        text = longer;
    }
    char *closed = memory_format("%s]", text);
    free(text);
    return closed;
}

static bool check_tensor(const safetensors_location *found, const parameter *p, int64_t rows, error *e) {
    const safetensors_entry *entry = found->entry;
    if (!safetensors_is_float(entry))
        return error_set(e, EXIT_MODEL, "%s: tensor %s: dtype %s; expected F32, BF16, F16 or F64", found->file->path,
                         entry->name, entry->type);
    int64_t shape[2] = {rows, p->shape[1]};
    if (entry->dimensions == p->dimensions && entry->shape[0] == shape[0] &&
        (p->dimensions == 1 || entry->shape[1] == shape[1]))
        return true;
    char *is = shape_text(entry->dimensions, entry->shape), *expected = shape_text(p->dimensions, shape);
    error_set(e, EXIT_MODEL, "%s: tensor %s: shape %s; expected %s", found->file->path, entry->name, is, expected);
    free(is);
    free(expected);
    return false;
}

static bool find_parts(huggingface_reader *r, int32_t index, error *e) {
    const parameter *p = &r->list->items[index];
    for (int part = 0; part < p->part_count; part++) {
        const char *name = p->parts[part].name;
        const safetensors_location *found = safetensors_locate(r->folder, name);
        if (found == NULL)
            found = safetensors_locate(r->folder, without_prefix(name));
        if (found == NULL)
            return error_set(e, EXIT_MODEL, "%s: no tensor %s", r->folder->path, name);
        if (!check_tensor(found, p, p->parts[part].rows, e))
            return false;
        r->tensors[index][part] = found;
    }
    return true;
}

static bool ends_with(const char *name, const char *end) {
    size_t length = strlen(name), end_length = strlen(end);
    return length >= end_length && strcmp(name + length - end_length, end) == 0;
}

/* Tensors of the file that say nothing which this program does not compute itself. */
static bool is_derived(const char *name) {
    return strcmp(name, "lm_head.weight") == 0 || ends_with(name, ".attn.bias") ||
           ends_with(name, ".attn.masked_bias") || ends_with(name, ".rotary_emb.inv_freq");
}

/* Marks what the parameters use and describes what is left over; NULL: nothing. */
static char *unknown_warning(const huggingface_reader *r) {
    bool *used = memory_allocate((size_t)r->folder->count, sizeof *used);
    for (int32_t i = 0; i < r->list->count; i++)
        for (int part = 0; part < r->list->items[i].part_count; part++)
            used[r->tensors[i][part] - r->folder->tensors] = true;
    int32_t unknown = 0;
    const char *first = NULL;
    for (int32_t t = 0; t < r->folder->count; t++) {
        const char *name = r->folder->tensors[t].name;
        if (used[t] || is_derived(name))
            continue;
        first = unknown++ == 0 ? name : first;
    }
    free(used);
    return unknown == 0 ? NULL
                        : memory_format("%s: %d tensor%s not of this model ignored, the first is %s", r->folder->path,
                                        unknown, unknown == 1 ? "" : "s", first);
}

bool huggingface_open(const char *folder, const parameter_list *list, huggingface_reader **opened, char **warning,
                      error *e) {
    huggingface_reader *r = memory_allocate(1, sizeof *r);
    r->list = list;
    r->tensors = memory_allocate((size_t)list->count, sizeof *r->tensors);
    bool fine = safetensors_open_folder(folder, &r->folder, e);
    for (int32_t i = 0; fine && i < list->count; i++)
        fine = find_parts(r, i, e);
    *warning = fine ? unknown_warning(r) : NULL;
    if (!fine) {
        huggingface_close(r);
        r = NULL;
    }
    *opened = r;
    return fine;
}

bool huggingface_read(huggingface_reader *r, int32_t index, int64_t first, int64_t count, float *values, error *e) {
    const parameter *p = &r->list->items[index];
    check(first >= 0 && count >= 0 && first <= parameter_elements(p) && count <= parameter_elements(p) - first,
          "%s: elements %lld + %lld", p->name, (long long)first, (long long)count);
    int64_t begin = 0; /* of the part, in elements of the parameter */
    for (int part = 0; part < p->part_count; part++) {
        int64_t end = begin + p->parts[part].rows * p->shape[1];
        int64_t from = maximum(first, begin), to = minimum(first + count, end);
        const safetensors_location *at = r->tensors[index][part];
        if (from < to && !safetensors_read(at->file, at->entry, from - begin, to - from, values + (from - first), e))
            return false;
        begin = end;
    }
    return true;
}

void huggingface_close(huggingface_reader *r) {
    if (r == NULL)
        return;
    safetensors_close_folder(r->folder);
    free(r->tensors);
    free(r);
}
