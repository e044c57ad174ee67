/* A manifest's text, read with every claim checked. */
#include "engine/checked.h"
#include "engine/device/dtype.h"
#include "shard/checkpoint_manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

typedef struct parser {
    const char *path;
    checkpoint_manifest *m;
    error *e;
} parser;

static bool wrong(const parser *p, const char *where, const char *what) {
    return error_set(p->e, EXIT_MODEL, "%s: %s: %s; this program did not write it so", p->path, where, what);
}

/* ---- members ---- */

static bool whole(const parser *p, const json_t *of, const char *name, int64_t least, int64_t *value) {
    const json_t *found = json_object_get(of, name);
    *value = json_integer_value(found);
    return (json_is_integer(found) && *value >= least) || wrong(p, name, "expected a whole number that is in range");
}

static bool text(const parser *p, const json_t *of, const char *name, char **value) {
    const json_t *found = json_object_get(of, name);
    if (!json_is_string(found) || strlen(json_string_value(found)) != json_string_length(found))
        return wrong(p, name, "expected a text");
    *value = memory_copy_string(json_string_value(found));
    return true;
}

static bool list(const parser *p, const json_t *of, const char *name, const json_t **value, int32_t *count) {
    *value = json_object_get(of, name);
    *count = (int32_t)minimum((int64_t)json_array_size(*value), INT32_MAX);
    return json_is_array(*value) || wrong(p, name, "expected a list");
}

static bool digits64(const char *digits, uint64_t *value) {
    if (strspn(digits, "0123456789abcdef") != 16 || digits[16] != '\0')
        return false;
    *value = strtoull(digits, NULL, 16);
    return true;
}

/* ---- files ---- */

static bool parse_file(const parser *p, const json_t *from, checkpoint_file *f) {
    const json_t *checksums;
    int32_t count;
    if (!text(p, from, "name", &f->name) || !whole(p, from, "bytes", 0, &f->bytes) ||
        !list(p, from, "checksums", &checksums, &count))
        return false;
    f->chunks = f->bytes / CHUNK_BYTES + (f->bytes % CHUNK_BYTES > 0);
    if (strchr(f->name, '/') != NULL || f->name[0] == '.' || strcmp(f->name, CHECKPOINT_MANIFEST_NAME) == 0)
        return wrong(p, f->name, "no name for a file of a checkpoint");
    if (count != f->chunks)
        return wrong(p, f->name, "its checksums do not cover its bytes");
    f->checksums = memory_allocate((size_t)count, sizeof *f->checksums);
    for (int32_t c = 0; c < count; c++) {
        const char *digits = json_string_value(json_array_get(checksums, (size_t)c));
        if (digits == NULL || !digits64(digits, &f->checksums[c]))
            return wrong(p, f->name, "a checksum is not 16 hexadecimal digits");
    }
    return true;
}

static bool parse_files(parser *p, const json_t *top) {
    const json_t *files;
    checkpoint_manifest *m = p->m;
    int32_t count;
    if (!list(p, top, "files", &files, &count))
        return false;
    m->files = memory_allocate((size_t)count, sizeof *m->files);
    for (m->file_count = 0; m->file_count < count; m->file_count++)
        if (!parse_file(p, json_array_get(files, (size_t)m->file_count), &m->files[m->file_count])) {
            m->file_count++; /* half of it is there and will be freed */
            return false;
        }
    return true;
}

/* ---- tensors ---- */

static bool find_file(const parser *p, const json_t *from, int32_t *found) {
    const char *name = json_string_value(json_object_get(from, "file"));
    for (int32_t f = 0; name != NULL && f < p->m->file_count; f++)
        if (strcmp(p->m->files[f].name, name) == 0) {
            *found = f;
            return true;
        }
    return wrong(p, name != NULL ? name : "file", "a piece lies in no file of the checkpoint");
}

static bool parse_piece(const parser *p, const json_t *from, const char *tensor, checkpoint_piece *piece) {
    if (!whole(p, from, "first", 0, &piece->first) || !whole(p, from, "count", 1, &piece->count) ||
        !find_file(p, from, &piece->file))
        return false;
    const int64_t bytes = p->m->files[piece->file].bytes;
    for (int part = 0; part < STATE_PARTS; part++) {
        int64_t *offset = &piece->offset[part];
        if (!whole(p, from, state_part_name((state_part)part), 0, offset))
            return false;
        if (*offset % PIECE_ALIGNMENT != 0 || *offset > bytes ||
            piece->count > (bytes - *offset) / dtype_bytes(DTYPE_F32))
            return wrong(p, tensor, "a piece leaves its file");
    }
    return true;
}

static bool parse_shape(const parser *p, const json_t *from, checkpoint_tensor *t) {
    const json_t *shape;
    int32_t count;
    int64_t elements;
    if (!list(p, from, "shape", &shape, &count))
        return false;
    if (count < 1 || count > 2)
        return wrong(p, t->name, "expected one or two dimensions");
    t->dimensions = count;
    for (int d = 0; d < 2; d++) {
        const json_t *size = json_array_get(shape, (size_t)d);
        t->shape[d] = d < count ? json_integer_value(size) : 1;
        if ((d < count && !json_is_integer(size)) || t->shape[d] < 1)
            return wrong(p, t->name, "a dimension is not a whole number above 0");
    }
    return checked_multiply(t->shape[0], t->shape[1], &elements) || wrong(p, t->name, "too many elements");
}

static bool parse_tensor(const parser *p, const json_t *from, int32_t unit, checkpoint_tensor *t) {
    const json_t *pieces;
    int32_t count;
    int64_t covered = 0;
    t->unit = unit;
    if (!text(p, from, "name", &t->name) || !parse_shape(p, from, t) || !list(p, from, "pieces", &pieces, &count))
        return false;
    const char *type = json_string_value(json_object_get(from, "type"));
    if (type == NULL || strcmp(type, "F32") != 0)
        return wrong(p, t->name, "its type is not F32");
    t->pieces = memory_allocate((size_t)count, sizeof *t->pieces);
    t->piece_count = count;
    for (int32_t i = 0; i < count; i++) {
        if (!parse_piece(p, json_array_get(pieces, (size_t)i), t->name, &t->pieces[i]))
            return false;
        if (t->pieces[i].first != covered || t->pieces[i].count > checkpoint_elements(t) - covered)
            return wrong(p, t->name, "its pieces do not follow each other");
        covered += t->pieces[i].count;
    }
    return covered == checkpoint_elements(t) || wrong(p, t->name, "its pieces leave elements out");
}

static bool parse_unit(parser *p, const json_t *from, int32_t unit) {
    checkpoint_manifest *m = p->m;
    const json_t *tensors;
    int32_t count;
    if (!text(p, from, "name", &m->units[unit].name) || !whole(p, from, "granule", 1, &m->units[unit].granule) ||
        !list(p, from, "tensors", &tensors, &count))
        return false;
    m->tensors = memory_grow(m->tensors, (size_t)m->tensor_count + (size_t)count, sizeof *m->tensors);
    for (int32_t i = 0; i < count; i++) {
        checkpoint_tensor *t = &m->tensors[m->tensor_count++];
        *t = (checkpoint_tensor){0};
        if (!parse_tensor(p, json_array_get(tensors, (size_t)i), unit, t))
            return false;
    }
    return true;
}

static bool parse_units(parser *p, const json_t *top) {
    const json_t *units;
    checkpoint_manifest *m = p->m;
    if (!list(p, top, "units", &units, &m->unit_count))
        return false;
    m->units = memory_allocate((size_t)m->unit_count, sizeof *m->units);
    for (int32_t u = 0; u < m->unit_count; u++)
        if (!parse_unit(p, json_array_get(units, (size_t)u), u))
            return false;
    return true;
}

/* ---- the whole ---- */

static bool parse_top(parser *p, const json_t *top) {
    int64_t format;
    if (!whole(p, top, "format", 1, &format))
        return false;
    if (format != CHECKPOINT_FORMAT)
        return error_set(p->e, EXIT_MODEL, "%s: format %lld; this program reads %d; use the version that wrote it",
                         p->path, (long long)format, CHECKPOINT_FORMAT);
    p->m->training = json_incref(json_object_get(top, "training"));
    if (!json_is_object(p->m->training))
        return wrong(p, "training", "expected an object");
    return whole(p, top, "step", 0, &p->m->step) && whole(p, top, "updates", 0, &p->m->updates) &&
           parse_files(p, top) && parse_units(p, top);
}

/* The file starts {"checksum":"0123456789abcdef", and the checksum is that of the rest. */
static bool check_sum(const parser *p, const char *content, size_t bytes) {
    static const char start[] = "{\"checksum\":\"";
    enum { START = sizeof start - 1, DIGITS = 16, PREFIX = START + DIGITS + 2 };
    char digits[DIGITS + 1] = "";
    uint64_t sum;
    if (bytes < PREFIX || memcmp(content, start, START) != 0 || memcmp(content + START + DIGITS, "\",", 2) != 0)
        return error_set(p->e, EXIT_MODEL, "%s: does not start with its checksum; " CHECKPOINT_DAMAGED, p->path);
    memcpy(digits, content + START, DIGITS);
    if (!digits64(digits, &sum) || sum != XXH3_64bits(content + PREFIX, bytes - PREFIX))
        return error_set(p->e, EXIT_MODEL, "%s: does not match its checksum; " CHECKPOINT_DAMAGED, p->path);
    return true;
}

bool checkpoint_manifest_parse(const char *content, size_t bytes, const char *path, checkpoint_manifest **parsed,
                               error *e) {
    parser p = {path, memory_allocate(1, sizeof(checkpoint_manifest)), e};
    json_error_t where;
    json_t *top = NULL;
    bool good = check_sum(&p, content, bytes);
    if (good && (top = json_loadb(content, bytes, JSON_REJECT_DUPLICATES, &where)) == NULL)
        good = error_set(e, EXIT_MODEL, "%s:%d: not valid JSON: %s; this program did not write it so", path, where.line,
                         where.text);
    good = good && parse_top(&p, top);
    json_decref(top);
    if (!good)
        checkpoint_manifest_destroy(p.m);
    else
        *parsed = p.m;
    return good;
}
