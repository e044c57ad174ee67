/* A Hugging Face folder from a checkpoint, by one process, with memory for a part of a tensor. */
#ifndef FSDP_LAUNCH_EXPORT_H
#define FSDP_LAUNCH_EXPORT_H

#include "engine/device/dtype.h"
#include "shard/checkpoint.h"

#include <stdio.h>

/* An opened checkpoint, its manifest checked; no checksum was compared yet. */
typedef struct exported {
    const char *path;
    checkpoint_manifest *manifest;
} exported;

bool export_open(const char *path, exported *opened, error *e);
void export_close(exported *x);

/* Compares every byte with its checksum. */
bool export_verify(const exported *x, error *e);

void export_list(const exported *x, FILE *to);

/* Writes FOLDER. A folder that is there and holds other things than a model is refused. type:
 * DTYPE_F32, DTYPE_BF16 or DTYPE_F16; a weight beyond fp16 is an error. `warning`: a line, freed by the caller; NULL:
 * none. */
bool export_write(const exported *x, const char *folder, dtype type, char **warning, error *e);

#endif
