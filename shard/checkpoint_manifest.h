/* The format of a checkpoint.
 *
 * A checkpoint is a folder of plain files: shard-00000.bin, shard-00001.bin, ... and manifest.json. It is complete or
 * absent: made under another name, brought to the disk, and renamed last (shard/checkpoint.h).
 *
 * The shard files hold raw little-endian fp32. Each was written by one rank and holds its granules of the weights, then
 * of the first moment, then of the second. A piece is a run of one parameter's elements; it starts at a multiple of
 * PIECE_ALIGNMENT bytes, and what lies between pieces is zero and never read as data. The padding of flat parameters
 * (shard/flat.h) is not stored: pieces are named by parameter and element, so that a checkpoint says nothing about
 * world size or strategy, and any rank reads exactly the bytes that it needs.
 *
 * manifest.json is one JSON object:
 *
 *   checksum   of all bytes of the file behind this value's comma: 16 hexadecimal digits; the file starts with it
 *   format     1
 *   step       steps done;  updates: of them, those whose update was applied (Adam's t)
 *   training   an object that belongs to launch/: position in the data, what the data was, model, config
 *   files      [{name, bytes, checksums: one of each run of CHUNK_BYTES}]
 *   units      [{name, granule, tensors: [{name, type: "F32", shape, pieces:
 *              [{first, count, file, weights, first_moment, second_moment}]}]}]
 *              a piece: elements first .. first + count, and where they start in the file, in bytes. The pieces of a
 *              tensor are in order and leave nothing out.
 *
 * Checksums are XXH3, 64 bits. Nothing in a manifest is believed: reading checks every claim, so that what follows
 * cannot leave the files. Errors carry EXIT_MODEL and name the file. */
#ifndef FSDP_SHARD_CHECKPOINT_MANIFEST_H
#define FSDP_SHARD_CHECKPOINT_MANIFEST_H

#include "shard/flat.h"

#include "engine/error.h"

#include <jansson.h>

enum { CHECKPOINT_FORMAT = 1, PIECE_ALIGNMENT = 64, CHUNK_BYTES = 4 << 20 };

#define CHECKPOINT_MANIFEST_NAME "manifest.json"

/* What to do about a file that is not what it was, for messages. */
#define CHECKPOINT_DAMAGED "the file is damaged: restore it, or go on from an older checkpoint"

typedef enum state_part { STATE_WEIGHTS, STATE_FIRST_MOMENT, STATE_SECOND_MOMENT, STATE_PARTS } state_part;

const char *state_part_name(state_part part);

typedef struct checkpoint_piece {
    int64_t first, count; /* elements of the tensor */
    int32_t file;
    int64_t offset[STATE_PARTS]; /* bytes */
} checkpoint_piece;

typedef struct checkpoint_tensor {
    char *name;
    int dimensions; /* 1 or 2 */
    int64_t shape[2];
    int32_t unit;
    checkpoint_piece *pieces;
    int32_t piece_count;
} checkpoint_tensor;

typedef struct checkpoint_file {
    char *name;
    int64_t bytes;
    uint64_t *checksums; /* [chunks] */
    int64_t chunks;
} checkpoint_file;

typedef struct checkpoint_unit {
    char *name;
    int64_t granule;
} checkpoint_unit;

typedef struct checkpoint_manifest {
    int64_t step, updates;
    json_t *training;
    checkpoint_file *files;
    int32_t file_count;
    checkpoint_unit *units;
    int32_t unit_count;
    checkpoint_tensor *tensors; /* by unit */
    int32_t tensor_count;
} checkpoint_manifest;

/* What the shard group of this layout writes: a file per rank, checksums still zero, no training object. */
checkpoint_manifest *checkpoint_manifest_plan(const parameter_list *list, const flat_layout *layout);

/* The text of manifest.json; freed by the caller. */
char *checkpoint_manifest_text(const checkpoint_manifest *m);

/* `path`: of the file that the text came from, for messages. */
bool checkpoint_manifest_parse(const char *text, size_t bytes, const char *path, checkpoint_manifest **parsed,
                               error *e);
void checkpoint_manifest_destroy(checkpoint_manifest *m);

/* NULL: no such tensor. */
const checkpoint_tensor *checkpoint_find(const checkpoint_manifest *m, const char *name);

static inline int64_t checkpoint_elements(const checkpoint_tensor *t) {
    return t->shape[0] * t->shape[1];
}

#endif
