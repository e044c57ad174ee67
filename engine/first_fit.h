/* First fit from two ends: blocks that live from one list position to another are placed one after the other, each at
 * the lowest or the highest offset that nothing placed before it uses while it lives. Private to engine/pack. */
#ifndef FSDP_ENGINE_FIRST_FIT_H
#define FSDP_ENGINE_FIRST_FIT_H

#include <stdint.h>

typedef struct first_fit first_fit;

/* For lives within positions 0 .. positions - 1. */
first_fit *first_fit_create(int32_t positions);
void first_fit_destroy(first_fit *f);

/* Forgets what was placed. */
void first_fit_clear(first_fit *f);

/* Places a block of `bytes` > 0 that lives at positions first .. last at the lowest offset; returns it. Takes about
 * log(positions) times the gaps that it looks at. */
int64_t first_fit_low(first_fit *f, int32_t first, int32_t last, int64_t bytes);

/* The same at the highest offset where it ends at or below `limit`; at the lowest when there is no room below it. */
int64_t first_fit_high(first_fit *f, int32_t first, int32_t last, int64_t bytes, int64_t limit);

#endif
