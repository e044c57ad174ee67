/* Who holds which bytes of the arena, while the list is walked. Private to engine/waits.
 *
 * Only the latest occupant of a byte matters to the next one: it has itself come after all that was there before. */
#ifndef FSDP_ENGINE_OCCUPANCY_H
#define FSDP_ENGINE_OCCUPANCY_H

#include "engine/lifetime.h"

typedef struct occupancy occupancy;

/* An arena that nobody holds bytes of. Needs addresses; program and lives must outlive it. */
occupancy *occupancy_create(const program *p, const lifetime *lives);
void occupancy_destroy(occupancy *o);

/* Storage s takes its bytes. Returns those that held some of them until now, *count of them, some perhaps more than
 * once; the list is valid until the next call. All takings together cost n log n for n storages. */
const tensor_id *occupancy_take(occupancy *o, tensor_id s, int32_t *count);

#endif
