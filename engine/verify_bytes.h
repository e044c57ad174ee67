/* The arena as verify sees it: runs of bytes that have had the same accesses. Private to engine/verify. */
#ifndef FSDP_ENGINE_VERIFY_BYTES_H
#define FSDP_ENGINE_VERIFY_BYTES_H

#include "engine/program.h"

#define NEVER INT64_C(-1)

typedef struct byte_run {
    int64_t begin, end;
    tensor_id owner; /* tensor that was last written here; NO_TENSOR: nothing yet */
    int64_t last_write;
    int64_t written[STREAM_COUNT], read[STREAM_COUNT]; /* last access on each stream since the last write; NEVER */
    int64_t lent[STREAM_COUNT];                        /* last collective that lets other ranks read it; NEVER */
} byte_run;

byte_run byte_run_new(int64_t begin, int64_t end, tensor_id owner);

typedef struct byte_map byte_map;

/* One run over all bytes that nobody owns. */
byte_map *byte_map_create(int64_t bytes);
void byte_map_destroy(byte_map *m);

/* Cuts runs so that one starts at `begin` and one ends at `end`; returns the place of the former. */
int32_t byte_map_cut(byte_map *m, int64_t begin, int64_t end);

/* The place behind the run that ends at `end`, after a cut. */
int32_t byte_map_end(const byte_map *m, int64_t end);

byte_run *byte_map_run(byte_map *m, int32_t place);

/* After a cut: puts `run` in the place of all runs inside its bytes. */
void byte_map_replace(byte_map *m, const byte_run *run);

#endif
