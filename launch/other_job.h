/* Other jobs of this program on this rank's cores. */
#ifndef FSDP_LAUNCH_OTHER_JOB_H
#define FSDP_LAUNCH_OTHER_JOB_H

#include "comm/world.h"

#include <sched.h>

/* The lowest process number of another job's rank that may run on one of these cores, and which of them; 0: there is
 * none to be seen from here. A rank is known by its program's name. Collective. */
long other_job_find(world *w, const cpu_set_t *cores, cpu_set_t *common);

#endif
