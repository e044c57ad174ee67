/* Reading a checkpoint: by ranges of a tensor's elements. */
#include "engine/checked.h"
#include "engine/device/dtype.h"
#include "shard/checkpoint.h"
#include "shard/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One file is open at a time: what a rank needs lies in few files, one after the other. */
struct checkpoint_reader {
    const checkpoint_manifest *m;
    char *folder, *path;
    int descriptor;
    int32_t file;
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
    r->file = file;
    return true;
}

bool checkpoint_read(checkpoint_reader *r, const checkpoint_tensor *t, state_part part, int64_t first, int64_t count,
                     float *values, error *e) {
    check(first >= 0 && count >= 0 && first <= checkpoint_elements(t) - count, "%s: elements %lld + %lld", t->name,
          (long long)first, (long long)count);
    for (int32_t i = 0; i < t->piece_count; i++) {
        const checkpoint_piece *p = &t->pieces[i];
        const int64_t from = maximum(first, p->first), to = minimum(first + count, p->first + p->count);
        const int64_t size = dtype_bytes(DTYPE_F32);
        if (from < to && (!enter_file(r, p->file, e) ||
                          !file_read_at(r->descriptor, r->path, values + (from - first), (size_t)((to - from) * size),
                                        p->offset[part] + (from - p->first) * size, e)))
            return false;
    }
    return true;
}

/* ---- a rank's shards ---- */

static bool load_slice(const checkpoint_state *s, checkpoint_reader *r, int32_t index, state_part part, float *values,
                       error *e) {
    const parameter *p = &s->list->items[index];
    const flat_slice slice = flat_slice_of(s->layout, s->list, s->layout->group_rank, index);
    const checkpoint_tensor *t = checkpoint_find(r->m, p->name);
    const int64_t room = CHUNK_BYTES / dtype_bytes(DTYPE_F32);
    for (int64_t done = 0; done < slice.count; done += room) {
        const int64_t count = minimum(room, slice.count - done);
        if (!checkpoint_read(r, t, part, slice.first + done, count, values, e))
            return false;
        s->write(s->context, p->unit, part, slice.at + done, count, values);
    }
    return true;
}

bool checkpoint_load(const checkpoint_state *s, const checkpoint_manifest *m, const char *path, error *e) {
    checkpoint_reader *r = checkpoint_reader_open(m, path);
    float *values = memory_allocate(CHUNK_BYTES, 1);
    bool good = true;
    for (int part = 0; part < STATE_PARTS; part++)
        for (int32_t i = 0; good && i < s->list->count; i++)
            good = load_slice(s, r, i, (state_part)part, values, e);
    free(values);
    checkpoint_reader_close(r);
    return good;
}
