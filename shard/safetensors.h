/* The safetensors file format (https://github.com/huggingface/safetensors, "Format"): 8 bytes with the length of the
 * header (little-endian), the header, then the tensors' bytes end to end, without gaps.
 *
 * The header is a JSON object: tensor name -> {"dtype": "F32", "shape": [..], "data_offsets": [begin, end]}, offsets
 * counted from the end of the header; "__metadata__" holds text. Nothing in it is believed: opening checks every claim
 * against the file, so that reading can't leave it. Values are read and written as fp32, by ranges of elements, so
 * that nobody needs memory for a whole tensor. Errors carry EXIT_MODEL and name file and tensor. */
#ifndef FSDP_SHARD_SAFETENSORS_H
#define FSDP_SHARD_SAFETENSORS_H

#include "engine/device/dtype.h"
#include "engine/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SAFETENSORS_DIMENSIONS = 8 };

typedef struct safetensors_entry {
    char *name;
    const char *type; /* the file's word: "F32", "BF16", "I64" ... */
    int dimensions;   /* 0: a single value */
    int64_t shape[SAFETENSORS_DIMENSIONS];
    int64_t elements, bytes;
    int64_t position; /* of the first byte, from the start of the file */
} safetensors_entry;

typedef struct safetensors_file {
    char *path;
    int descriptor;
    int64_t bytes;
    safetensors_entry *entries; /* sorted by name */
    int32_t count;
} safetensors_file;

bool safetensors_open(const char *path, safetensors_file **opened, error *e);
void safetensors_close(safetensors_file *file);

/* NULL: no such tensor. */
const safetensors_entry *safetensors_find(const safetensors_file *file, const char *name);

/* Whether values of this tensor can be read: F64, F32, F16 or BF16. */
bool safetensors_is_float(const safetensors_entry *entry);

/* Elements first .. first + count of the flattened tensor, as fp32 (exact, but for F64: rounded to nearest). The
 * caller has checked that the tensor is a float tensor and that the range is inside it. */
bool safetensors_read(const safetensors_file *file, const safetensors_entry *entry, int64_t first, int64_t count,
                      float *values, error *e);

/* The tensors of a model folder: one model.safetensors, or the files that model.safetensors.index.json's "weight_map"
 * names. */
typedef struct safetensors_location {
    const char *name; /* of the tensor */
    const safetensors_file *file;
    const safetensors_entry *entry;
} safetensors_location;

typedef struct safetensors_folder {
    char *path; /* of the one file or of the index, for messages */
    safetensors_file **files;
    int32_t file_count;
    safetensors_location *tensors; /* sorted by name */
    int32_t count;
} safetensors_folder;

bool safetensors_open_folder(const char *folder, safetensors_folder **opened, error *e);
void safetensors_close_folder(safetensors_folder *folder);

/* NULL: no such tensor. */
const safetensors_location *safetensors_locate(const safetensors_folder *folder, const char *name);

/* A tensor of a file to be written. */
typedef struct safetensors_tensor {
    const char *name;
    int dimensions;
    int64_t shape[SAFETENSORS_DIMENSIONS];
} safetensors_tensor;

typedef struct safetensors_writer safetensors_writer;

/* Creates the file (one that exists is an error) with its header and its full length. All tensors have one type,
 * DTYPE_F32, DTYPE_BF16 or DTYPE_F16, and lie in the order given; `tensors` is copied, its names are not and outlive
 * the writer. */
bool safetensors_create(const char *path, const safetensors_tensor *tensors, int32_t count, dtype type,
                        safetensors_writer **created, error *e);

/* Elements first .. first + count of tensor `index`, rounded to the file's type; in any order. */
bool safetensors_write(safetensors_writer *writer, int32_t index, int64_t first, int64_t count, const float *values,
                       error *e);

/* Brings the file to the disk and frees the writer, whatever the result. Every element has been written by now (after
 * a failed write: safetensors_abandon). */
bool safetensors_finish(safetensors_writer *writer, error *e);

/* Closes the file, unfinished, and frees the writer. NULL is fine. */
void safetensors_abandon(safetensors_writer *writer);

#endif
