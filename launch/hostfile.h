/* The hostfile that a launcher is given: whether its nodes can be reached, before anything is started on them. */
#ifndef FSDP_LAUNCH_HOSTFILE_H
#define FSDP_LAUNCH_HOSTFILE_H

#include "engine/error.h"

/* launcher: its words, as "mpirun --hostfile hosts". Every node of the file but this one is entered as mpirun does it,
 * by the agent of --mca plm_rsh_agent, of OMPI_MCA_plm_rsh_agent, or ssh, else rsh; 64 at the same time and for at most
 * ten seconds. True where no file is named, and inside a job of a batch system, by which mpirun then starts. Errors:
 * EXIT_USAGE, the file cannot be read; EXIT_LAUNCH, a node cannot be reached, named with the file's line and what the
 * agent said. */
bool hostfile_check(const char *launcher, error *e);

#endif
