/* Writing: the header and the full length first, then values in any order. */
#include "engine/checked.h"
#include "engine/device/half.h"
#include "shard/file.h"
#include "shard/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct safetensors_writer {
    char *path;
    int descriptor;
    dtype type;
    int32_t count;
    safetensors_tensor *tensors;
    int64_t *elements;  /* [count] */
    int64_t *positions; /* [count]: first byte of each tensor, from the start of the file */
    int64_t end;        /* length of the file */
    int64_t missing;    /* elements not yet written */
};

static const char *type_word(dtype type) {
    return type == DTYPE_F32 ? "F32" : type == DTYPE_BF16 ? "BF16" : "F16";
}

static json_t *describe(const safetensors_tensor *tensor, const char *type, int64_t begin, int64_t end) {
    json_t *shape = json_array();
    for (int i = 0; i < tensor->dimensions; i++)
        json_array_append_new(shape, json_integer(tensor->shape[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", type, "shape", shape, "data_offsets", (json_int_t)begin,
                     (json_int_t)end);
}

/* Lays the tensors out and returns the header's text, padded with blanks so that the data starts at a multiple of 64
 * bytes (the format asks for 8). Positions count from the data's start until the header's length is known. */
static char *make_header(safetensors_writer *w, size_t *length) {
    json_t *header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt"); /* transformers insists on it */
    for (int32_t t = 0; t < w->count; t++) {
        const safetensors_tensor *tensor = &w->tensors[t];
        w->elements[t] = 1;
        for (int i = 0; i < tensor->dimensions; i++)
            w->elements[t] = must_multiply(w->elements[t], tensor->shape[i]);
        w->positions[t] = w->end;
        w->end += must_multiply(w->elements[t], dtype_bytes(w->type));
        w->missing += w->elements[t];
        json_object_set_new(header, tensor->name, describe(tensor, type_word(w->type), w->positions[t], w->end));
    }
    char *text = json_dumps(header, JSON_COMPACT);
    check(text != NULL, "cannot format the header of %s", w->path);
    json_decref(header);
    size_t used = strlen(text);
    *length = (size_t)round_up((int64_t)used + 8, 64) - 8;
    text = memory_grow(text, *length, 1);
    memset(text + used, ' ', *length - used);
    for (int32_t t = 0; t < w->count; t++)
        w->positions[t] += (int64_t)*length + 8;
    w->end += (int64_t)*length + 8;
    return text;
}

static bool failed(const safetensors_writer *w, const char *what, error *e) {
    return error_set_own(e, EXIT_MODEL, "%s: cannot %s: %s", w->path, what, strerror(errno));
}

static bool begin_file(safetensors_writer *w, const char *header, size_t length, error *e) {
    uint64_t prefix = length;
    w->descriptor = open(w->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (w->descriptor < 0)
        return failed(w, "create", e);
    if (ftruncate(w->descriptor, w->end) != 0)
        return failed(w, "write", e);
    return file_write_at(w->descriptor, w->path, &prefix, sizeof prefix, 0, e) &&
           file_write_at(w->descriptor, w->path, header, length, sizeof prefix, e);
}

bool safetensors_create(const char *path, const safetensors_tensor *tensors, int32_t count, dtype type,
                        safetensors_writer **created, error *e) {
    check(type == DTYPE_F32 || type == DTYPE_BF16 || type == DTYPE_F16, "cannot write safetensors of %s",
          dtype_name(type));
    safetensors_writer *w = memory_allocate(1, sizeof *w);
    w->path = memory_copy_string(path);
    w->type = type;
    w->count = count;
    w->tensors = memory_allocate((size_t)count, sizeof *w->tensors);
    memcpy(w->tensors, tensors, (size_t)count * sizeof *tensors);
    w->elements = memory_allocate((size_t)count, sizeof *w->elements);
    w->positions = memory_allocate((size_t)count, sizeof *w->positions);
    size_t length = 0;
    char *header = make_header(w, &length);
    bool fine = begin_file(w, header, length, e);
    free(header);
    if (!fine) {
        safetensors_abandon(w);
        w = NULL;
    }
    *created = w;
    return fine;
}

static bool write_halves(const safetensors_writer *w, int64_t position, int64_t count, const float *values, error *e) {
    uint16_t piece[16384];
    const int64_t piece_elements = (int64_t)(sizeof piece / sizeof piece[0]);
    for (int64_t done = 0; done < count; done += piece_elements) {
        int64_t elements = minimum(piece_elements, count - done);
        for (int64_t i = 0; i < elements; i++)
            piece[i] = w->type == DTYPE_BF16 ? bf16_from_float(values[done + i]) : f16_from_float(values[done + i]);
        if (!file_write_at(w->descriptor, w->path, piece, (size_t)elements * sizeof piece[0],
                           position + done * (int64_t)sizeof piece[0], e))
            return false;
    }
    return true;
}

bool safetensors_write(safetensors_writer *w, int32_t index, int64_t first, int64_t count, const float *values,
                       error *e) {
    check(index >= 0 && index < w->count, "%s has no tensor %d", w->path, index);
    check(first >= 0 && count >= 0 && first <= w->elements[index] && count <= w->elements[index] - first,
          "tensor %s has %lld elements, got %lld from %lld", w->tensors[index].name, (long long)w->elements[index],
          (long long)count, (long long)first);
    int64_t position = w->positions[index] + first * dtype_bytes(w->type);
    bool fine = w->type != DTYPE_F32
                    ? write_halves(w, position, count, values, e)
                    : file_write_at(w->descriptor, w->path, values, (size_t)count * sizeof *values, position, e);
    w->missing -= fine ? count : 0;
    return fine;
}

bool safetensors_finish(safetensors_writer *w, error *e) {
    check(w->missing == 0, "%s: %lld elements not written", w->path, (long long)w->missing);
    bool fine = fsync(w->descriptor) == 0 || failed(w, "sync", e);
    if (close(w->descriptor) != 0 && fine)
        fine = failed(w, "close", e);
    w->descriptor = -1;
    safetensors_abandon(w);
    return fine;
}

void safetensors_abandon(safetensors_writer *w) {
    if (w == NULL)
        return;
    if (w->descriptor >= 0)
        close(w->descriptor);
    free(w->tensors);
    free(w->elements);
    free(w->positions);
    free(w->path);
    free(w);
}
