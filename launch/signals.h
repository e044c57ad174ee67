/* Signals that a run answers at the end of the step it is in: SIGINT and SIGTERM end it in order, SIGUSR1 saves
 * and goes on. A second SIGINT or SIGTERM ends the process at once. */
#ifndef FSDP_LAUNCH_SIGNALS_H
#define FSDP_LAUNCH_SIGNALS_H

#include <stdbool.h>

void signals_install(void);

/* Number of the signal that asked this process to end; 0: none yet. */
int signals_end(void);

/* Whether SIGUSR1 came since the last call. */
bool signals_take_save(void);

#endif
