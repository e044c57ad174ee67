/* The machine that a rank runs on: its threads and memory. */
#ifndef FSDP_LAUNCH_MACHINE_H
#define FSDP_LAUNCH_MACHINE_H

#include <stdint.h>

/* Threads of this rank: `configured` if above 0, else OMP_NUM_THREADS, else the cores that it may run on, divided by
 * the ranks that share them. */
int machine_threads(int64_t configured, int sharers);

/* Bytes that the machine, or this process's control group, can still give; -1: not known. */
int64_t machine_available_memory(void);

/* Resident bytes of this process now. */
int64_t machine_resident(void);

#endif
