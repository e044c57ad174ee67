/* Writing a checkpoint: every rank its file, then rank 0 the manifest and the name. */
#include "engine/checked.h"
#include "engine/device/dtype.h"
#include "shard/checkpoint.h"
#include "shard/checkpoint_folder.h"
#include "shard/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
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

/* A file that grows in the order of its bytes, gathered before they are written: by the chunk or, when the state is to
 * be copied first, all of them. */
typedef struct shard_writer {
    int descriptor;
    const char *path;
    unsigned char *gathered; /* [room] */
    int64_t room, used, written;
    uint64_t *checksums; /* of all chunks */
    const atomic_bool *abandoned;
} shard_writer;

static bool write_chunk(shard_writer *w, const unsigned char *chunk, int64_t bytes, error *e) {
    if (atomic_load(w->abandoned))
        return error_set(e, EXIT_MODEL, "%s: given up, as the run ends", w->path);
    w->checksums[w->written / CHUNK_BYTES] = XXH3_64bits(chunk, (size_t)bytes);
    const bool good = file_write_at(w->descriptor, w->path, chunk, (size_t)bytes, w->written, e);
    w->written += bytes;
    return good;
}

static bool flush(shard_writer *w, error *e) {
    bool good = true;
    for (int64_t at = 0; good && at < w->used; at += CHUNK_BYTES)
        good = write_chunk(w, w->gathered + at, minimum(CHUNK_BYTES, w->used - at), e);
    w->used = 0;
    return good;
}

/* Room for up to *bytes more; *bytes becomes what fits. NULL: what was gathered could not be written. */
static void *reserve(shard_writer *w, int64_t *bytes, error *e) {
    if (w->used == w->room && !flush(w, e))
        return NULL;
    *bytes = minimum(*bytes, w->room - w->used);
    w->used += *bytes;
    return w->gathered + w->used - *bytes;
}

static bool gather_zeros_to(shard_writer *w, int64_t position, error *e) {
    while (w->written + w->used < position) {
        int64_t bytes = position - w->written - w->used;
        void *room = reserve(w, &bytes, e);
        if (room == NULL)
            return false;
        memset(room, 0, (size_t)bytes);
    }
    return true;
}

static bool gather_piece(shard_writer *w, const checkpoint_state *s, int32_t index, state_part part, error *e) {
    const flat_slice slice = flat_slice_of(s->layout, s->list, s->layout->group_rank, index);
    const int64_t size = dtype_bytes(DTYPE_F32);
    for (int64_t done = 0; done < slice.count;) {
        int64_t bytes = (slice.count - done) * size;
        float *room = reserve(w, &bytes, e); /* chunks and pieces start at multiples of an element */
        if (room == NULL)
            return false;
        s->read(s->context, s->list->items[index].unit, part, slice.at + done, bytes / size, room);
        done += bytes / size;
    }
    return true;
}

/* This rank's pieces, in the order of the plan, which knows where each starts. */
static bool gather(shard_writer *w, const checkpoint_state *s, const checkpoint_manifest *m, error *e) {
    const int32_t file = s->layout->group_rank;
    for (int part = 0; part < STATE_PARTS; part++)
        for (int32_t t = 0; t < m->tensor_count; t++)
            for (int32_t i = 0; i < m->tensors[t].piece_count; i++) {
                const checkpoint_piece *piece = &m->tensors[t].pieces[i];
                if (piece->file == file &&
                    (!gather_zeros_to(w, piece->offset[part], e) || !gather_piece(w, s, t, (state_part)part, e)))
                    return false;
            }
    return gather_zeros_to(w, m->files[file].bytes, e);
}

/* ---- the phases ---- */

typedef enum phase { PREPARE, WRITE_FILES, PUBLISH, DONE } phase;

struct checkpoint_writing {
    checkpoint_state state;
    world *world;
    checkpoint_facts facts;
    char *folder, *final, *temporary;
    checkpoint_manifest *manifest;
    shard_writer file; /* of a rank that writes; gathered is NULL until then when there is no copy */
    phase phase;
    error failure; /* of this rank's work */
    error left;    /* rank 0: what stood in the way of removing older ones */
    atomic_bool abandoned;
};

static bool writes(const checkpoint_writing *g) {
    return g->world->rank < g->state.layout->group_size;
}

/* What a killed writer left under this name goes. */
static bool prepare(const checkpoint_writing *g, error *e) {
    if (!file_exists(g->folder) && !folder_make_one(g->folder))
        return failed("create", g->folder, e);
    return folder_remove(g->temporary, e) && (mkdir(g->temporary, 0777) == 0 || failed("create", g->temporary, e));
}

static bool gather_and_write(checkpoint_writing *g, error *e) {
    shard_writer *w = &g->file;
    if (w->gathered != NULL) /* the copy */
        return flush(w, e);
    w->gathered = memory_allocate(CHUNK_BYTES, 1);
    const bool good = gather(w, &g->state, g->manifest, e) && flush(w, e);
    free(w->gathered);
    return good;
}

static bool write_own_file(checkpoint_writing *g, error *e) {
    shard_writer *w = &g->file;
    char *path = memory_format("%s/%s", g->temporary, g->manifest->files[g->state.layout->group_rank].name);
    w->path = path;
    w->descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    bool good = w->descriptor >= 0 || failed("create", path, e);
    good = good && gather_and_write(g, e) && (fsync(w->descriptor) == 0 || failed("sync", path, e));
    if (w->descriptor >= 0 && close(w->descriptor) != 0 && good)
        good = failed("close", path, e);
    free(path);
    return good;
}

static void collect_checksums(const checkpoint_writing *g) {
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
static bool rename_into_place(const checkpoint_writing *g, error *e) {
    if (rename(g->temporary, g->final) != 0)
        return failed("rename into place", g->temporary, e);
    if (folder_sync(g->folder, e))
        return true;
    rename(g->final, g->temporary); /* should this fail, too, it stays: whole, if perhaps not after a power cut */
    return false;
}

/* The manifest last, then the name. */
static bool publish(const checkpoint_writing *g, error *e) {
    checkpoint_manifest *m = g->manifest;
    m->step = g->facts.step;
    m->updates = g->facts.updates;
    m->training = json_incref(g->facts.training);
    char *text = checkpoint_manifest_text(m), *path = memory_format("%s/%s", g->temporary, CHECKPOINT_MANIFEST_NAME);
    const bool good =
        file_create(path, text, strlen(text), e) && folder_sync(g->temporary, e) && rename_into_place(g, e);
    free(path);
    free(text);
    return good;
}

/* ---- the whole ---- */

int64_t checkpoint_copy_bytes(const parameter_list *list, const flat_layout *layout) {
    checkpoint_manifest *m = checkpoint_manifest_plan(list, layout);
    int64_t most = 1;
    for (int32_t f = 0; f < m->file_count; f++)
        most = maximum(most, m->files[f].bytes);
    checkpoint_manifest_destroy(m);
    return most;
}

checkpoint_writing *checkpoint_begin(const checkpoint_state *s, world *w, const char *folder,
                                     const checkpoint_facts *facts, void *copy) {
    checkpoint_writing *g = memory_allocate(1, sizeof *g);
    char *final = checkpoint_path(folder, facts->step);
    *g = (checkpoint_writing){.state = *s,
                              .world = w,
                              .facts = *facts,
                              .folder = memory_copy_string(folder),
                              .final = final,
                              .temporary = memory_format("%s%s", final, CHECKPOINT_INCOMPLETE),
                              .manifest = checkpoint_manifest_plan(s->list, s->layout)};
    json_incref(g->facts.training);
    const checkpoint_file *own = &g->manifest->files[s->layout->group_rank];
    g->file = (shard_writer){.gathered = copy,
                             .room = copy != NULL ? own->bytes : CHUNK_BYTES,
                             .checksums = own->checksums,
                             .abandoned = &g->abandoned};
    if (copy != NULL && writes(g))
        check(gather(&g->file, s, g->manifest, &g->failure), "a file does not fit into its copy");
    return g;
}

void checkpoint_work(checkpoint_writing *g) {
    const bool first = g->world->rank == 0;
    if (g->phase == PREPARE && first)
        prepare(g, &g->failure);
    else if (g->phase == WRITE_FILES && writes(g))
        write_own_file(g, &g->failure);
    else if (g->phase == PUBLISH && first && publish(g, &g->failure) && g->facts.keep > 0)
        checkpoint_prune(g->folder, g->facts.keep, &g->left);
}

bool checkpoint_meet(checkpoint_writing *g, error *e) {
    *e = g->failure;
    if (!world_agree_and_go_on(g->world, e)) {
        error ignored = {0}; /* the failure itself is what the user must know */
        if (g->world->rank == 0)
            folder_remove(g->temporary, &ignored);
        return false;
    }
    if (g->phase == WRITE_FILES)
        collect_checksums(g);
    return ++g->phase < DONE;
}

void checkpoint_abandon(checkpoint_writing *g) {
    atomic_store(&g->abandoned, true);
}

void checkpoint_end(checkpoint_writing *g, error *left) {
    *left = g->left;
    checkpoint_manifest_destroy(g->manifest);
    json_decref(g->facts.training);
    free(g->temporary);
    free(g->final);
    free(g->folder);
    free(g);
}

bool checkpoint_write(const checkpoint_state *s, world *w, const char *folder, const checkpoint_facts *facts,
                      error *e) {
    checkpoint_writing *g = checkpoint_begin(s, w, folder, facts, NULL);
    error left;
    do
        checkpoint_work(g);
    while (checkpoint_meet(g, e));
    checkpoint_end(g, &left);
    return e->code == 0;
}
