/* The timeline of all ranks, folder/trace.json: open it in https://ui.perfetto.dev or chrome://tracing. What is in it
 * is said in engine/trace.h. Times start at the first traced step and are those of rank 0's clock; "otherData" says how
 * far the clocks of other nodes may be off. Complete or absent. */
#ifndef FSDP_LAUNCH_TRACE_FILE_H
#define FSDP_LAUNCH_TRACE_FILE_H

#include "comm/world.h"
#include "engine/trace.h"

/* Collective: rank 0 writes the steps first .. last of all ranks, one rank after the other. False, on rank 0 only: the
 * file could not be written (EXIT_USAGE). */
bool trace_file_write(world *w, trace *t, int64_t first, int64_t last, const char *folder, error *e);

#endif
