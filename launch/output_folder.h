/* A run's output folder, which one run at a time writes.
 *
 * The lock is a file, FOLDER/lock, that the system keeps locked for the process that opened it, and lets go when the
 * process ends in whatever way; so the lock of a dead run is never in the way. Its text says who holds it. */
#ifndef FSDP_LAUNCH_OUTPUT_FOLDER_H
#define FSDP_LAUNCH_OUTPUT_FOLDER_H

#include "engine/error.h"

/* Makes the folder with its parents. One that cannot be made or written is EXIT_USAGE, with path and reason. */
bool output_folder_prepare(const char *folder, error *e);

typedef struct output_lock output_lock;

/* For rank 0. Refused (EXIT_USAGE) while another run holds it, naming that one's host, process and start. */
bool output_lock_take(const char *folder, output_lock **taken, error *e);

/* Removes the file. NULL is fine. */
void output_lock_release(output_lock *l);

#endif
