/* Where each rank runs and on what, for the plan. */
#ifndef FSDP_LAUNCH_RANK_TABLE_H
#define FSDP_LAUNCH_RANK_TABLE_H

#include "comm/world.h"
#include "engine/device/device.h"
#include "launch/binding.h"

/* Rank 0 prints a row per rank. *warning, which the caller frees, names a rank that shares cores which it fills with a
 * rank of another job, the same on all ranks; NULL: there is none. Collective. */
void rank_table_print(world *w, const device *d, const binding *b, int threads, char **warning);

#endif
