/* The machine that a rank runs on: its cores, threads and memory. */
#ifndef FSDP_LAUNCH_MACHINE_H
#define FSDP_LAUNCH_MACHINE_H

#include "comm/world.h"

#include <stdint.h>

/* Open MPI binds each of one or two ranks to a single core unless told otherwise. A rank that was bound so, without
 * anybody asking (no --bind-to), widens to its own slice of the cores that the system allows. Before any thread
 * starts. */
void machine_widen_binding(const world *w);

/* Threads of this rank: `configured` if above 0, else OMP_NUM_THREADS, else max(1, allowed cores / local ranks). */
int machine_threads(int64_t configured, const world *w);

/* The cores that this process may run on, as "0-3,8"; "unknown" where the system does not say. */
void machine_cores(char *text, size_t size);

/* Bytes that the machine, or this process's control group, can still give; -1: not known. */
int64_t machine_available_memory(void);

/* Resident bytes of this process now. */
int64_t machine_resident(void);

#endif
