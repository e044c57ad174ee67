/* A rank's threads. Work is cut into tiles whose number and borders depend on shapes alone, and one thread executes a
 * whole tile: the number of threads never changes a bit of the result. Every thread flushes subnormals to zero. */
#ifndef FSDP_ENGINE_DEVICE_CPU_POOL_H
#define FSDP_ENGINE_DEVICE_CPU_POOL_H

#include "engine/device/device.h"

/* Executes one tile; `thread` is 0 .. threads-1, for scratch that belongs to a thread. */
typedef void pool_tile(void *context, int64_t tile, int thread);

/* threads >= 1, the calling thread included; cores: NULL or one core number per thread. */
bool pool_create(int threads, const int *cores, pool **created, error *e);
void pool_destroy(pool *p);
int pool_threads(const pool *p);

/* Executes tiles 0 .. tiles-1, in any order, on all threads; returns when all are done. Not reentrant. */
void pool_run(pool *p, int64_t tiles, pool_tile *tile, void *context);

#endif
