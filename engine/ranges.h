/* What the host queues, named for profilers: a range for each stretch of operations of one unit, phase and pass, and in
 * it one for each operation. */
#ifndef FSDP_ENGINE_RANGES_H
#define FSDP_ENGINE_RANGES_H

#include "engine/program.h"

typedef struct ranges ranges;

/* Program and device outlive it. NULL where the device tells no profiler; the other calls then do nothing. */
ranges *ranges_create(const program *p, device *d);
void ranges_destroy(ranges *r);

/* Around the queueing of one operation; ranges_close behind the last. */
void ranges_begin(ranges *r, int32_t operation);
void ranges_end(ranges *r);
void ranges_close(ranges *r);

#endif
