/* Which cores a rank runs on. Memory follows: pages come from the NUMA node of the thread that touches them first.
 *
 * The cores that the launcher and the container allow are divided evenly among the ranks of the node that may use the
 * same ones: of a GPU, those near to it. What was asked of the launcher is kept: --bind-to of mpirun, a task binding of
 * Slurm. What Open MPI does unasked, one core for each of one or two ranks, is not. A rank has cores of its own, or,
 * where ranks outnumber cores, shares them with all. */
#ifndef FSDP_LAUNCH_BINDING_H
#define FSDP_LAUNCH_BINDING_H

#include "comm/world.h"
#include "launch/config.h"

#include <sched.h>

typedef struct binding {
    cpu_set_t allowed; /* before this program divided them */
    cpu_set_t cores;   /* that this rank may use now */
    int sharers;       /* ranks of this node that use the same, this one included */
    bool divides;      /* this program may divide them: nobody asked the launcher for something else */
} binding;

/* Collective; before any thread starts. [device] bind = yes that was asked for and cannot be is EXIT_USAGE. */
bool binding_make(const config *c, world *w, binding *made, error *e);

/* Whether this many threads in each rank leave none of its cores free. */
bool binding_filled(const binding *b, int threads);

/* Divides again, now that the ranks' GPUs are known. Collective; address: of the rank's GPU on the PCI bus. */
void binding_move_near(binding *b, world *w, const char *address);

/* "bound to cores 0-7, NUMA node 0"; "cores 0-1, shared by 4 ranks". */
void binding_describe(const binding *b, char *text, size_t size);

#endif
