/* What a checkpoint holds and where: planned from a layout, and written as text. */
#include "shard/checkpoint_manifest.h"

#include "engine/checked.h"
#include "engine/device/dtype.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

const char *state_part_name(state_part part) {
    static const char *const names[] = {"weights", "first_moment", "second_moment"};
    return names[part];
}

/* ---- planning ---- */

/* Adds what a rank holds of a tensor, its place in the file still open. */
static void add_piece(checkpoint_tensor *t, int32_t file, flat_slice slice) {
    t->pieces = memory_grow(t->pieces, (size_t)t->piece_count + 1, sizeof *t->pieces);
    t->pieces[t->piece_count++] = (checkpoint_piece){.first = slice.first, .count = slice.count, .file = file};
}

/* Lays a rank's pieces end to end: all weights, then the moments. */
static void plan_file(checkpoint_manifest *m, const parameter_list *list, const flat_layout *layout, int32_t file) {
    int64_t end = 0;
    for (int part = 0; part < STATE_PARTS; part++)
        for (int32_t i = 0; i < list->count; i++) {
            checkpoint_tensor *t = &m->tensors[i];
            const flat_slice slice = flat_slice_of(layout, list, file, i);
            if (slice.count == 0)
                continue;
            if (part == 0)
                add_piece(t, file, slice);
            t->pieces[t->piece_count - 1].offset[part] = end;
            end = round_up(end + slice.count * dtype_bytes(DTYPE_F32), PIECE_ALIGNMENT);
        }
    checkpoint_file *f = &m->files[file];
    *f = (checkpoint_file){memory_format("shard-%05d.bin", (int)file), end, NULL, divide_up(end, CHUNK_BYTES)};
    f->checksums = memory_allocate((size_t)f->chunks, sizeof *f->checksums);
}

checkpoint_manifest *checkpoint_manifest_plan(const parameter_list *list, const flat_layout *layout) {
    checkpoint_manifest *m = memory_allocate(1, sizeof *m);
    m->file_count = layout->group_size;
    m->files = memory_allocate((size_t)m->file_count, sizeof *m->files);
    m->unit_count = list->unit_count;
    m->units = memory_allocate((size_t)m->unit_count, sizeof *m->units);
    m->tensor_count = list->count;
    m->tensors = memory_allocate((size_t)m->tensor_count, sizeof *m->tensors);
    for (int32_t u = 0; u < m->unit_count; u++)
        m->units[u] = (checkpoint_unit){memory_copy_string(list->unit_names[u]), layout->units[u].granule};
    for (int32_t i = 0; i < m->tensor_count; i++) {
        const parameter *p = &list->items[i];
        m->tensors[i] = (checkpoint_tensor){.name = memory_copy_string(p->name),
                                            .dimensions = p->dimensions,
                                            .shape = {p->shape[0], p->shape[1]},
                                            .unit = p->unit};
    }
    for (int32_t file = 0; file < m->file_count; file++)
        plan_file(m, list, layout, file);
    return m;
}

void checkpoint_manifest_destroy(checkpoint_manifest *m) {
    if (m == NULL)
        return;
    for (int32_t f = 0; f < m->file_count; f++) {
        free(m->files[f].name);
        free(m->files[f].checksums);
    }
    for (int32_t u = 0; u < m->unit_count; u++)
        free(m->units[u].name);
    for (int32_t t = 0; t < m->tensor_count; t++) {
        free(m->tensors[t].name);
        free(m->tensors[t].pieces);
    }
    free(m->files);
    free(m->units);
    free(m->tensors);
    json_decref(m->training);
    free(m);
}

const checkpoint_tensor *checkpoint_find(const checkpoint_manifest *m, const char *name) {
    for (int32_t t = 0; t < m->tensor_count; t++)
        if (strcmp(m->tensors[t].name, name) == 0)
            return &m->tensors[t];
    return NULL;
}

/* ---- text ---- */

static json_t *file_json(const checkpoint_file *f) {
    json_t *checksums = json_array();
    for (int64_t c = 0; c < f->chunks; c++) {
        char digits[17];
        snprintf(digits, sizeof digits, "%016" PRIx64, f->checksums[c]);
        json_array_append_new(checksums, json_string(digits));
    }
    return json_pack("{s:s, s:I, s:o}", "name", f->name, "bytes", (json_int_t)f->bytes, "checksums", checksums);
}

static json_t *tensor_json(const checkpoint_manifest *m, const checkpoint_tensor *t) {
    json_t *pieces = json_array(), *shape = json_array();
    for (int d = 0; d < t->dimensions; d++)
        json_array_append_new(shape, json_integer(t->shape[d]));
    for (int32_t i = 0; i < t->piece_count; i++) {
        const checkpoint_piece *p = &t->pieces[i];
        json_t *piece = json_pack("{s:I, s:I, s:s}", "first", (json_int_t)p->first, "count", (json_int_t)p->count,
                                  "file", m->files[p->file].name);
        for (int part = 0; part < STATE_PARTS; part++)
            json_object_set_new(piece, state_part_name((state_part)part), json_integer(p->offset[part]));
        json_array_append_new(pieces, piece);
    }
    return json_pack("{s:s, s:s, s:o, s:o}", "name", t->name, "type", "F32", "shape", shape, "pieces", pieces);
}

static json_t *unit_json(const checkpoint_manifest *m, int32_t unit) {
    json_t *tensors = json_array();
    for (int32_t t = 0; t < m->tensor_count; t++)
        if (m->tensors[t].unit == unit)
            json_array_append_new(tensors, tensor_json(m, &m->tensors[t]));
    return json_pack("{s:s, s:I, s:o}", "name", m->units[unit].name, "granule", (json_int_t)m->units[unit].granule,
                     "tensors", tensors);
}

char *checkpoint_manifest_text(const checkpoint_manifest *m) {
    json_t *files = json_array(), *units = json_array();
    for (int32_t f = 0; f < m->file_count; f++)
        json_array_append_new(files, file_json(&m->files[f]));
    for (int32_t u = 0; u < m->unit_count; u++)
        json_array_append_new(units, unit_json(m, u));
    json_t *top = json_pack("{s:i, s:I, s:I, s:O, s:o, s:o}", "format", CHECKPOINT_FORMAT, "step", (json_int_t)m->step,
                            "updates", (json_int_t)m->updates, "training", m->training, "files", files, "units", units);
    char *body = top != NULL ? json_dumps(top, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(top);
    check(body != NULL, "a manifest cannot be written as JSON");
    const char *rest = body + 1; /* the checksum takes the place of the opening bracket */
    char *text = memory_format("{\"checksum\":\"%016" PRIx64 "\",%s", XXH3_64bits(rest, strlen(rest)), rest);
    free(body);
    return text;
}
