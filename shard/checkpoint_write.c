/* Writing a checkpoint: every rank its file, then rank 0 the manifest and the name. */
#include "engine/checked.h"
#include "engine/device/dtype.h"
#include "shard/checkpoint.h"
#include "shard/checkpoint_folder.h"
#include "shard/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

static bool failed(const char *what, const char *path, error *e) {
    return error_set_own(e, EXIT_MODEL, "%s: cannot %s: %s", path, what, strerror(errno));
}

/* ---- a rank's file ---- */

/* A file that grows chunk by chunk. */
typedef struct chunk_writer {
    int descriptor;
    const char *path;
    unsigned char *chunk; /* [CHUNK_BYTES] */
    int64_t used, written;
    uint64_t *checksums; /* next one */
} chunk_writer;

static bool flush(chunk_writer *c, error *e) {
    if (c->used == 0)
        return true;
    *c->checksums++ = XXH3_64bits(c->chunk, (size_t)c->used);
    const bool good = file_write_at(c->descriptor, c->path, c->chunk, (size_t)c->used, c->written, e);
    c->written += c->used;
    c->used = 0;
    return good;
}

/* Room for up to *bytes more, in the chunk itself; *bytes becomes what fits. NULL: the chunk could not be written. */
static void *reserve(chunk_writer *c, int64_t *bytes, error *e) {
    if (c->used == CHUNK_BYTES && !flush(c, e))
        return NULL;
    *bytes = minimum(*bytes, CHUNK_BYTES - c->used);
    c->used += *bytes;
    return c->chunk + c->used - *bytes;
}

static bool write_zeros_to(chunk_writer *c, int64_t position, error *e) {
    while (c->written + c->used < position) {
        int64_t bytes = position - c->written - c->used;
        void *room = reserve(c, &bytes, e);
        if (room == NULL)
            return false;
        memset(room, 0, (size_t)bytes);
    }
    return true;
}

static bool write_piece(chunk_writer *c, const checkpoint_state *s, int32_t index, state_part part, error *e) {
    const flat_slice slice = flat_slice_of(s->layout, s->list, s->layout->group_rank, index);
    const int64_t size = dtype_bytes(DTYPE_F32);
    for (int64_t done = 0; done < slice.count;) {
        int64_t bytes = (slice.count - done) * size;
        float *room = reserve(c, &bytes, e); /* chunks and pieces start at multiples of an element */
        if (room == NULL)
            return false;
        s->read(s->context, s->list->items[index].unit, part, slice.at + done, bytes / size, room);
        done += bytes / size;
    }
    return true;
}

/* This rank's pieces, in the order of the plan, which knows where each starts. */
static bool write_pieces(chunk_writer *c, const checkpoint_state *s, const checkpoint_manifest *m, error *e) {
    const int32_t file = s->layout->group_rank;
    for (int part = 0; part < STATE_PARTS; part++)
        for (int32_t t = 0; t < m->tensor_count; t++)
            for (int32_t i = 0; i < m->tensors[t].piece_count; i++) {
                const checkpoint_piece *piece = &m->tensors[t].pieces[i];
                if (piece->file == file &&
                    (!write_zeros_to(c, piece->offset[part], e) || !write_piece(c, s, t, (state_part)part, e)))
                    return false;
            }
    return write_zeros_to(c, m->files[file].bytes, e) && flush(c, e);
}

static bool write_file(const checkpoint_state *s, checkpoint_manifest *m, const char *path, error *e) {
    const int descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0)
        return failed("create", path, e);
    chunk_writer c = {.descriptor = descriptor,
                      .path = path,
                      .chunk = memory_allocate(CHUNK_BYTES, 1),
                      .checksums = m->files[s->layout->group_rank].checksums};
    bool good = write_pieces(&c, s, m, e) && (fsync(descriptor) == 0 || failed("sync", path, e));
    if (close(descriptor) != 0 && good)
        good = failed("close", path, e);
    free(c.chunk);
    return good;
}

/* ---- the whole ---- */

/* A checkpoint on its way. */
typedef struct writing {
    const checkpoint_state *state;
    world *world;
    const checkpoint_facts *facts;
    const char *folder;
    char *final, *temporary;
    checkpoint_manifest *manifest;
} writing;

static bool writes(const writing *g) {
    return g->world->rank < g->state->layout->group_size;
}

/* What a killed writer left under this name goes. */
static bool begin(const writing *g, error *e) {
    if (mkdir(g->folder, 0777) != 0 && errno != EEXIST)
        return failed("create", g->folder, e);
    return folder_remove(g->temporary, e) && (mkdir(g->temporary, 0777) == 0 || failed("create", g->temporary, e));
}

static bool write_own_file(const writing *g, error *e) {
    char *path = memory_format("%s/%s", g->temporary, g->manifest->files[g->state->layout->group_rank].name);
    const bool good = write_file(g->state, g->manifest, path, e);
    free(path);
    return good;
}

static void collect_checksums(const writing *g) {
    for (int32_t f = 1; f < g->manifest->file_count; f++) {
        const checkpoint_file *file = &g->manifest->files[f];
        const size_t bytes = (size_t)file->chunks * sizeof *file->checksums;
        if (bytes > 0 && g->world->rank == f)
            world_send(g->world, file->checksums, bytes, 0);
        if (bytes > 0 && g->world->rank == 0)
            world_receive(g->world, file->checksums, bytes, f);
    }
}

/* The name is durable when its folder is; until then the checkpoint must not count. */
static bool rename_into_place(const writing *g, error *e) {
    if (rename(g->temporary, g->final) != 0)
        return failed("rename into place", g->temporary, e);
    if (folder_sync(g->folder, e))
        return true;
    rename(g->final, g->temporary); /* should this fail, too, it stays: whole, if perhaps not after a power cut */
    return false;
}

/* The manifest last, then the name. */
static bool publish(const writing *g, error *e) {
    checkpoint_manifest *m = g->manifest;
    m->step = g->facts->step;
    m->updates = g->facts->updates;
    m->training = json_incref(g->facts->training);
    char *text = checkpoint_manifest_text(m), *path = memory_format("%s/%s", g->temporary, CHECKPOINT_MANIFEST_NAME);
    const bool good =
        file_create(path, text, strlen(text), e) && folder_sync(g->temporary, e) && rename_into_place(g, e);
    free(path);
    free(text);
    return good;
}

static bool write_all(const writing *g, error *e) {
    if (g->world->rank == 0)
        begin(g, e);
    if (!world_agree_and_go_on(g->world, e))
        return false;
    if (writes(g))
        write_own_file(g, e);
    if (!world_agree_and_go_on(g->world, e))
        return false;
    collect_checksums(g);
    if (g->world->rank == 0)
        publish(g, e);
    return world_agree_and_go_on(g->world, e);
}

bool checkpoint_write(const checkpoint_state *s, world *w, const char *folder, const checkpoint_facts *facts,
                      error *e) {
    char *final = checkpoint_path(folder, facts->step);
    writing g = {s,
                 w,
                 facts,
                 folder,
                 final,
                 memory_format("%s%s", final, CHECKPOINT_INCOMPLETE),
                 checkpoint_manifest_plan(s->list, s->layout)};
    const bool good = write_all(&g, e);
    if (!good && w->rank == 0) {
        error ignored = {0}; /* the failure itself is what the user must know */
        folder_remove(g.temporary, &ignored);
    }
    checkpoint_manifest_destroy(g.manifest);
    free(g.temporary);
    free(final);
    return good;
}
