/* Reading a checkpoint: by chunks, each compared with its checksum before a byte of it is handed out. */
#include "engine/checked.h"
#include "engine/device/dtype.h"
#include "shard/checkpoint.h"
#include "shard/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

/* A reader of tensors goes through many files in turn, and comes back to the chunk where it left each. */
enum { SLOTS = 8 };

typedef struct held_chunk {
    unsigned char *bytes; /* NULL or [CHUNK_BYTES] */
    int32_t file;
    int64_t number; /* of the chunk in its file; -1: none is held */
} held_chunk;

/* One file is open at a time. */
struct checkpoint_reader {
    const checkpoint_manifest *m;
    char *folder, *path;
    int descriptor;
    int32_t file;
    held_chunk held[SLOTS]; /* a file's chunk is in the slot of its number modulo SLOTS */
};

checkpoint_reader *checkpoint_reader_open(const checkpoint_manifest *m, const char *path) {
    checkpoint_reader *r = memory_allocate(1, sizeof *r);
    *r = (checkpoint_reader){.m = m, .folder = memory_copy_string(path), .descriptor = -1, .file = -1};
    return r;
}

static void leave_file(checkpoint_reader *r) {
    if (r->descriptor >= 0)
        close(r->descriptor);
    free(r->path);
    r->path = NULL;
    r->descriptor = -1;
    r->file = -1;
}

void checkpoint_reader_close(checkpoint_reader *r) {
    if (r == NULL)
        return;
    leave_file(r);
    for (int slot = 0; slot < SLOTS; slot++)
        free(r->held[slot].bytes);
    free(r->folder);
    free(r);
}

static bool enter_file(checkpoint_reader *r, int32_t file, error *e) {
    if (r->file == file)
        return true;
    leave_file(r);
    r->path = memory_format("%s/%s", r->folder, r->m->files[file].name);
    r->descriptor = open(r->path, O_RDONLY | O_CLOEXEC);
    if (r->descriptor < 0)
        return error_set_own(e, EXIT_MODEL, "%s: cannot open: %s", r->path, strerror(errno));
    posix_fadvise(r->descriptor, 0, 0, POSIX_FADV_SEQUENTIAL); /* the system reads on while checksums are computed */
    r->file = file;
    return true;
}

/* The bytes of a chunk, as they were written; NULL: they are not. */
static const unsigned char *hold(checkpoint_reader *r, int32_t file, int64_t number, error *e) {
    held_chunk *h = &r->held[file % SLOTS];
    if (h->bytes == NULL)
        *h = (held_chunk){.bytes = memory_allocate(CHUNK_BYTES, 1), .number = -1};
    if (h->file == file && h->number == number)
        return h->bytes;
    const checkpoint_file *f = &r->m->files[file];
    const int64_t at = number * CHUNK_BYTES, bytes = minimum(CHUNK_BYTES, f->bytes - at);
    h->file = file;
    h->number = -1;
    if (!enter_file(r, file, e) || !file_read_at(r->descriptor, r->path, h->bytes, (size_t)bytes, at, e))
        return NULL;
    if (XXH3_64bits(h->bytes, (size_t)bytes) != f->checksums[number]) {
        error_set(e, EXIT_MODEL, "%s: bytes %lld to %lld do not match their checksum; " CHECKPOINT_DAMAGED, r->path,
                  (long long)at, (long long)(at + bytes - 1));
        return NULL;
    }
    h->number = number;
    return h->bytes;
}

/* A run of the values of a file, inside one chunk, from byte `offset`; *count becomes how many of them there are. */
static const float *values_at(checkpoint_reader *r, int32_t file, int64_t offset, int64_t *count, error *e) {
    const unsigned char *chunk = hold(r, file, offset / CHUNK_BYTES, e);
    *count = minimum(*count, (CHUNK_BYTES - offset % CHUNK_BYTES) / dtype_bytes(DTYPE_F32));
    return chunk != NULL ? (const float *)(const void *)(chunk + offset % CHUNK_BYTES) : NULL;
}

/* ---- tensors ---- */

static bool read_run(checkpoint_reader *r, int32_t file, int64_t offset, int64_t count, float *values, error *e) {
    while (count > 0) {
        int64_t run = count;
        const float *from = values_at(r, file, offset, &run, e);
        if (from == NULL)
            return false;
        memcpy(values, from, (size_t)run * sizeof *values);
        values += run;
        offset += run * dtype_bytes(DTYPE_F32);
        count -= run;
    }
    return true;
}

bool checkpoint_read(checkpoint_reader *r, const checkpoint_tensor *t, state_part part, int64_t first, int64_t count,
                     float *values, error *e) {
    check(first >= 0 && count >= 0 && first <= checkpoint_elements(t) - count, "%s: elements %lld + %lld", t->name,
          (long long)first, (long long)count);
    for (int32_t i = 0; i < t->piece_count; i++) {
        const checkpoint_piece *p = &t->pieces[i];
        const int64_t from = maximum(first, p->first), to = minimum(first + count, p->first + p->count);
        const int64_t offset = p->offset[part] + (from - p->first) * dtype_bytes(DTYPE_F32);
        if (from < to && !read_run(r, p->file, offset, to - from, values + (from - first), e))
            return false;
    }
    return true;
}

/* ---- a rank's shards ---- */

/* What a piece holds of the slice of parameter `index`, straight from its chunks. */
static bool load_piece(const checkpoint_state *s, checkpoint_reader *r, int32_t index, state_part part,
                       const checkpoint_piece *p, error *e) {
    const flat_slice slice = flat_slice_of(s->layout, s->list, s->layout->group_rank, index);
    const int64_t end = minimum(slice.first + slice.count, p->first + p->count);
    for (int64_t at = maximum(slice.first, p->first); at < end;) {
        int64_t run = end - at;
        const float *values =
            values_at(r, p->file, p->offset[part] + (at - p->first) * dtype_bytes(DTYPE_F32), &run, e);
        if (values == NULL)
            return false;
        s->write(s->context, s->list->items[index].unit, part, slice.at + (at - slice.first), run, values);
        at += run;
    }
    return true;
}

/* In the order of the files' bytes, so that no chunk is read twice. */
bool checkpoint_load(const checkpoint_state *s, const checkpoint_manifest *m, const char *path, error *e) {
    checkpoint_reader *r = checkpoint_reader_open(m, path);
    const checkpoint_tensor **of = memory_allocate((size_t)s->list->count, sizeof *of);
    bool good = true;
    for (int32_t i = 0; i < s->list->count; i++)
        of[i] = checkpoint_find(m, s->list->items[i].name);
    for (int32_t file = 0; file < m->file_count; file++)
        for (int part = 0; part < STATE_PARTS; part++)
            for (int32_t i = 0; i < s->list->count; i++)
                for (int32_t k = 0; good && k < of[i]->piece_count; k++)
                    if (of[i]->pieces[k].file == file)
                        good = load_piece(s, r, i, (state_part)part, &of[i]->pieces[k], e);
    free(of);
    checkpoint_reader_close(r);
    return good;
}

/* ---- the whole ---- */

bool checkpoint_check_chunks(const checkpoint_manifest *m, const char *path, error *e) {
    checkpoint_reader *r = checkpoint_reader_open(m, path);
    bool good = true;
    for (int32_t file = 0; file < m->file_count; file++)
        for (int64_t c = 0; good && c < m->files[file].chunks; c++)
            good = hold(r, file, c, e) != NULL;
    checkpoint_reader_close(r);
    return good;
}
