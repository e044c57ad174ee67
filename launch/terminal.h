/* The terminal that shows a file descriptor, if one does. */
#ifndef FSDP_LAUNCH_TERMINAL_H
#define FSDP_LAUNCH_TERMINAL_H

#include <stdbool.h>

/* A launcher gives its processes a terminal of its own making (Open MPI does), whatever shows the launcher's output.
 * Such a terminal has no size; then what counts is the standard output of the nearest ancestor that has another one.
 * Returns a descriptor for terminal_columns, to be closed by the caller; -1: nobody is watching. */
int terminal_open(int output);

/* Its width now; 80 when it does not say. */
int terminal_columns(int terminal);

#endif
