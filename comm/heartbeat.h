/* Private to comm/, save heartbeat_start: finds out within seconds that a rank of another node, or a whole node, is
 * lost, whatever the ranks are doing, MPI being no help in this.
 *
 * The lowest rank of each node has a thread that watches the ranks of its node and holds lifelines to other nodes
 * (comm/lifeline.h), one to the next. What it finds it tells the ranks of its node through shared memory, and the other
 * nodes' threads along the lifelines. The ranks come upon it in whatever wait they are in, and end the job as after any
 * failure (comm/world.h). Where the main thread of the rank that is to print does not come that far in time, because it
 * computes or is in an exchange that nothing ends, the thread prints and ends the process itself: files are complete or
 * absent at any moment, so nothing is lost by that.
 *
 * What makes no alarm: a process that is busy or stopped, a node that has finished (comm/world.h: world_close), the
 * death of processes that the launcher kills all together. */
#ifndef FSDP_COMM_HEARTBEAT_H
#define FSDP_COMM_HEARTBEAT_H

#include "comm/failure.h"
#include "comm/world.h"

typedef struct heartbeat heartbeat;

/* Called by the thread when the main thread has not ended the process in time: prints the message if this rank speaks,
 * and ends the process with its code. */
typedef void heartbeat_last_resort(const error *e, bool speaks);

/* Watches all nodes until world_close. Collective; nothing on a single node. *warning, which the caller frees, names
 * nodes that no other node reaches, the same on all ranks; NULL: none. */
bool heartbeat_start(world *w, heartbeat_last_resort *end, char **warning, error *e);

/* NULL is fine for both. */
void heartbeat_stop(heartbeat *h);
/* Whether ranks are lost; cheap. The thread then relies on the main thread to end the process. */
bool heartbeat_failed(heartbeat *h, failure *f);

#endif
