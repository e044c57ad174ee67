/* Other orders in which a program may be executed: the list's own order is one of many that its streams and waits
 * allow, and a device with asynchronous streams may take any of them. */
#ifndef FSDP_ENGINE_ORDER_H
#define FSDP_ENGINE_ORDER_H

#include "engine/program.h"

/* An order of the program's operations picked by the seed: each stream in its own order, every wait kept, collectives
 * in the order of the list (there is one launch order). Freed by the caller. */
int32_t *order_pick(const program *p, uint64_t seed);

#endif
