/* Checkpoints: a training state on disk, complete or absent, from which any number of ranks goes on. The format is
 * described in shard/checkpoint_manifest.h; the folder that holds the checkpoints of a run, in
 * shard/checkpoint_folder.h.
 *
 * Errors carry EXIT_MODEL, name path and system's reason, and are the rank's own where only it can see them. */
#ifndef FSDP_SHARD_CHECKPOINT_H
#define FSDP_SHARD_CHECKPOINT_H

#include "comm/world.h"
#include "shard/checkpoint_manifest.h"

/* The state of this rank, wherever it lies. Elements at .. at + count of its shard of a unit; ranges never touch
 * padding. */
typedef struct checkpoint_state {
    const parameter_list *list;
    const flat_layout *layout;
    void *context;
    void (*read)(void *context, int32_t unit, state_part part, int64_t at, int64_t count, float *values);
    void (*write)(void *context, int32_t unit, state_part part, int64_t at, int64_t count, const float *values);
} checkpoint_state;

typedef struct checkpoint_facts {
    int64_t step, updates;
    json_t *training; /* as in the manifest; on rank 0, the others may have NULL */
    int64_t keep;     /* the newest checkpoints that stay when this one is complete; 0: all */
} checkpoint_facts;

/* Writes FOLDER/step-NNNNNNNN, which must not exist. Collective; the ranks of the first shard group write, with
 * CHUNK_BYTES of memory. False on every rank, with the same error, when any rank failed: then no checkpoint was added
 * or removed, and the job can go on. */
bool checkpoint_write(const checkpoint_state *s, world *w, const char *folder, const checkpoint_facts *facts, error *e);

/* The same in parts, so that another thread can write while this one trains:
 *
 *     g = checkpoint_begin(&state, w, folder, &facts, copy);
 *     do
 *         checkpoint_work(g);             touches files only, no world: for any thread
 *     while (checkpoint_meet(g, &e));     collective; waits for the other ranks' work
 *     checkpoint_end(g, &left);
 *
 * copy: NULL, then the state is read while files are written; or checkpoint_copy_bytes of memory that belong to the
 * checkpoint until checkpoint_end, into which checkpoint_begin copies what this rank writes. */
typedef struct checkpoint_writing checkpoint_writing;

/* Bytes of a copy, the same on every rank that writes; at least 1. */
int64_t checkpoint_copy_bytes(const parameter_list *list, const flat_layout *layout);

checkpoint_writing *checkpoint_begin(const checkpoint_state *s, world *w, const char *folder,
                                     const checkpoint_facts *facts, void *copy);
void checkpoint_work(checkpoint_writing *g);

/* Whether there is more to do. False: the checkpoint is complete, or *e says why there is none. */
bool checkpoint_meet(checkpoint_writing *g, error *e);

/* Makes the work under way fail soon; from any thread. */
void checkpoint_abandon(checkpoint_writing *g);

/* *left: why older checkpoints could not be removed (rank 0), code 0 if they were. */
void checkpoint_end(checkpoint_writing *g, error *left);

/* Whether the folder at `path` holds the files that the manifest names, of their length, and nothing else. */
bool checkpoint_check_files(const checkpoint_manifest *m, const char *path, error *e);

/* Compares all chunks with their checksums. */
bool checkpoint_check_chunks(const checkpoint_manifest *m, const char *path, error *e);

/* Whether the checkpoint holds exactly the parameters of the list. */
bool checkpoint_check_parameters(const checkpoint_manifest *m, const char *path, const parameter_list *list, error *e);

/* Reads whole chunks, and hands out values of those only that match their checksums. Takes a few times CHUNK_BYTES of
 * memory. */
typedef struct checkpoint_reader checkpoint_reader;

checkpoint_reader *checkpoint_reader_open(const checkpoint_manifest *m, const char *path);
void checkpoint_reader_close(checkpoint_reader *r);

/* Elements first .. first + count of a tensor, which are inside it. */
bool checkpoint_read(checkpoint_reader *r, const checkpoint_tensor *t, state_part part, int64_t first, int64_t count,
                     float *values, error *e);

/* Fills this rank's shards, reading each of the chunks that hold a part of them once. The parameters were checked. What
 * was filled before damage was found stays. All ranks of a shard group together read every chunk. */
bool checkpoint_load(const checkpoint_state *s, const checkpoint_manifest *m, const char *path, error *e);

#endif
