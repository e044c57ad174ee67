/* Opening: the header is parsed and every claim in it is checked against the file. */
#include "engine/checked.h"
#include "shard/file.h"
#include "shard/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors files are little-endian and are read into memory as they are"
#endif

enum { LENGTH_BYTES = 8 };
static const int64_t header_limit = 100000000; /* the limit of the format's own library */

static const struct {
    const char *name;
    int64_t bytes;
} types[] = {{"F64", 8},     {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F8_E4M3", 1}, {"F8_E5M2", 1},
             {"F8_E8M0", 1}, {"C64", 8}, {"I64", 8}, {"I32", 4},  {"I16", 2},     {"I8", 1},
             {"U64", 8},     {"U32", 4}, {"U16", 2}, {"U8", 1},   {"BOOL", 1}};

static bool find_type(const char *name, const char **type, int64_t *bytes) {
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++)
        if (strcmp(name, types[t].name) == 0) {
            *type = types[t].name;
            *bytes = types[t].bytes;
            return true;
        }
    return false;
}

static bool wrong(const safetensors_file *file, const safetensors_entry *entry, error *e, const char *what) {
    return error_set(e, EXIT_MODEL, "%s: tensor %s: %s", file->path, entry->name, what);
}

/* The shape, and from it the number of elements. */
static bool parse_shape(const safetensors_file *file, const json_t *shape, safetensors_entry *entry, error *e) {
    if (!json_is_array(shape))
        return wrong(file, entry, e, "expected \"shape\" to be a list of sizes");
    size_t dimensions = json_array_size(shape);
    if (dimensions > SAFETENSORS_DIMENSIONS)
        return error_set(e, EXIT_MODEL, "%s: tensor %s: %zu dimensions; at most %d can be read", file->path,
                         entry->name, dimensions, SAFETENSORS_DIMENSIONS);
    entry->dimensions = (int)dimensions;
    entry->elements = 1;
    for (size_t i = 0; i < dimensions; i++) {
        const json_t *size = json_array_get(shape, i);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return wrong(file, entry, e, "expected \"shape\" to be a list of sizes");
        entry->shape[i] = json_integer_value(size);
        if (!checked_multiply(entry->elements, entry->shape[i], &entry->elements))
            return wrong(file, entry, e, "the product of its shape overflows");
    }
    return true;
}

/* The tensor's bytes: inside the file, and as many as type and shape ask for. */
static bool parse_offsets(const safetensors_file *file, const json_t *offsets, int64_t data, int64_t element_bytes,
                          safetensors_entry *entry, error *e) {
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return wrong(file, entry, e, "expected \"data_offsets\" to be [begin, end]");
    int64_t first = json_integer_value(begin), last = json_integer_value(end), available = file->bytes - data;
    if (first < 0 || last < first || last > available)
        return error_set(e, EXIT_MODEL, "%s: tensor %s: data_offsets [%lld, %lld] leave the file's %lld data bytes",
                         file->path, entry->name, (long long)first, (long long)last, (long long)available);
    entry->position = data + first;
    int64_t expected = 0;
    if (!checked_multiply(entry->elements, element_bytes, &expected))
        return wrong(file, entry, e, "the product of its shape overflows");
    entry->bytes = last - first;
    if (entry->bytes != expected)
        return error_set(e, EXIT_MODEL, "%s: tensor %s: data_offsets hold %lld bytes; its type and shape need %lld",
                         file->path, entry->name, (long long)entry->bytes, (long long)expected);
    return true;
}

static bool parse_entry(const safetensors_file *file, const json_t *description, int64_t data, safetensors_entry *entry,
                        error *e) {
    const char *type = json_string_value(json_object_get(description, "dtype"));
    int64_t element_bytes = 0;
    if (type == NULL)
        return wrong(file, entry, e, "expected \"dtype\" to be a string");
    if (!find_type(type, &entry->type, &element_bytes))
        return error_set(e, EXIT_MODEL, "%s: tensor %s: unknown dtype %s", file->path, entry->name, type);
    return parse_shape(file, json_object_get(description, "shape"), entry, e) &&
           parse_offsets(file, json_object_get(description, "data_offsets"), data, element_bytes, entry, e);
}

static int by_position(const void *left, const void *right) {
    const safetensors_entry *a = left, *b = right;
    if (a->position != b->position)
        return a->position < b->position ? -1 : 1;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1; /* an empty tensor comes before the one it touches */
    return strcmp(a->name, b->name);
}

static int by_name(const void *left, const void *right) {
    return strcmp(((const safetensors_entry *)left)->name, ((const safetensors_entry *)right)->name);
}

/* The tensors cover the data: no overlap, no gap. Leaves the entries sorted by name. */
static bool check_cover(safetensors_file *file, int64_t data, error *e) {
    qsort(file->entries, (size_t)file->count, sizeof *file->entries, by_position);
    int64_t end = data;
    for (int32_t i = 0; i < file->count; i++) {
        const safetensors_entry *entry = &file->entries[i];
        if (entry->position < end)
            return error_set(e, EXIT_MODEL, "%s: tensor %s overlaps tensor %s", file->path, entry->name,
                             file->entries[i - 1].name);
        if (entry->position > end)
            return error_set(e, EXIT_MODEL, "%s: %lld bytes before tensor %s belong to no tensor", file->path,
                             (long long)(entry->position - end), entry->name);
        end = entry->position + entry->bytes;
    }
    if (end != file->bytes)
        return error_set(e, EXIT_MODEL, "%s: %lld bytes at the end belong to no tensor", file->path,
                         (long long)(file->bytes - end));
    qsort(file->entries, (size_t)file->count, sizeof *file->entries, by_name);
    return true;
}

static bool parse_header(safetensors_file *file, json_t *header, int64_t data, error *e) {
    file->entries = memory_allocate(json_object_size(header), sizeof *file->entries);
    const char *name;
    json_t *description;
    json_object_foreach(header, name, description) {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        safetensors_entry *entry = &file->entries[file->count++];
        entry->name = memory_copy_string(name);
        if (!parse_entry(file, description, data, entry, e))
            return false;
    }
    return check_cover(file, data, e);
}

/* Reads the header's length and text. NULL on failure; *data: where the tensors' bytes begin. */
static json_t *load_header(const safetensors_file *file, int64_t *data, error *e) {
    uint64_t length = 0;
    if (file->bytes < LENGTH_BYTES) {
        error_set(e, EXIT_MODEL, "%s: %lld bytes; a safetensors file has at least %d", file->path,
                  (long long)file->bytes, LENGTH_BYTES);
        return NULL;
    }
    if (!file_read_at(file->descriptor, file->path, &length, sizeof length, 0, e))
        return NULL;
    if (length > (uint64_t)(file->bytes - LENGTH_BYTES) || length > (uint64_t)header_limit) {
        error_set(e, EXIT_MODEL,
                  "%s: the header claims %llu bytes; the file has %lld after its length, and %lld are "
                  "the limit",
                  file->path, (unsigned long long)length, (long long)(file->bytes - LENGTH_BYTES),
                  (long long)header_limit);
        return NULL;
    }
    char *text = memory_allocate((size_t)length, 1);
    json_t *header = NULL;
    if (file_read_at(file->descriptor, file->path, text, (size_t)length, LENGTH_BYTES, e)) {
        json_error_t where;
        header = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &where);
        if (header == NULL)
            error_set(e, EXIT_MODEL, "%s: the header is not valid JSON: %s", file->path, where.text);
        else if (!json_is_object(header)) {
            error_set(e, EXIT_MODEL, "%s: expected the header to be a JSON object", file->path);
            json_decref(header);
            header = NULL;
        }
    }
    free(text);
    *data = LENGTH_BYTES + (int64_t)length;
    return header;
}

static bool open_descriptor(safetensors_file *file, error *e) {
    file->descriptor = open(file->path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (file->descriptor < 0 || fstat(file->descriptor, &status) != 0)
        return error_set(e, EXIT_MODEL, "%s: cannot open: %s", file->path, strerror(errno));
    if (!S_ISREG(status.st_mode))
        return error_set(e, EXIT_MODEL, "%s: expected a file", file->path);
    file->bytes = status.st_size;
    return true;
}

bool safetensors_open(const char *path, safetensors_file **opened, error *e) {
    safetensors_file *file = memory_allocate(1, sizeof *file);
    file->path = memory_copy_string(path);
    int64_t data = 0;
    json_t *header = open_descriptor(file, e) ? load_header(file, &data, e) : NULL;
    bool fine = header != NULL && parse_header(file, header, data, e);
    json_decref(header);
    if (!fine) {
        safetensors_close(file);
        file = NULL;
    }
    *opened = file;
    return fine;
}

void safetensors_close(safetensors_file *file) {
    if (file == NULL)
        return;
    if (file->descriptor >= 0)
        close(file->descriptor);
    for (int32_t i = 0; i < file->count; i++)
        free(file->entries[i].name);
    free(file->entries);
    free(file->path);
    free(file);
}

const safetensors_entry *safetensors_find(const safetensors_file *file, const char *name) {
    safetensors_entry key = {.name = (char *)name};
    return bsearch(&key, file->entries, (size_t)file->count, sizeof key, by_name);
}
