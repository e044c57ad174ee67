/* Checks of collectives on a real device, for ranks that are threads or processes alike: every kind, with counts that
 * do not divide, several under way at once, late ranks, reuse of released memory, against sums made in rank order. */
#ifndef TESTS_SUPPORT_COLLECTIVE_CHECKS_H
#define TESTS_SUPPORT_COLLECTIVE_CHECKS_H

#include "comm/collectives.h"

/* All ranks call it. False: *e says what was wrong. */
bool collective_checks(world *w, transport how, int threads, int steps, error *e);

/* An open device with an arena and collectives on it. */
typedef struct gathers {
    device *device;
    device_memory memory;
    collectives *collectives;
} gathers;

/* `count` all_gathers of `elements` floats named "gather 0", ...; all on stream 0. */
bool gathers_open(world *w, transport how, int32_t count, int64_t elements, double timeout, gathers *opened, error *e);
void gathers_close(gathers *a);

#endif
