/* Several ranks in one process: every rank is a thread that holds its own world. The exchanges of comm/world.h and the
 * collectives of comm/collectives.h work between the threads as they do between processes, so that tests run any
 * number of ranks without a launcher. All ranks are on one node. */
#ifndef FSDP_COMM_LOOPBACK_H
#define FSDP_COMM_LOOPBACK_H

#include "comm/world.h"

typedef struct loopback loopback;

loopback *loopback_create(int ranks); /* ranks >= 1 */
/* After every rank's world is closed. */
void loopback_destroy(loopback *l);

/* The world of one rank, once per rank, used by one thread; closed with world_close. */
void loopback_world(loopback *l, int rank, world *w);

#endif
