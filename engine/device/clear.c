#include "engine/device/clear.h"

#include "engine/checked.h"

#include <stdlib.h>

void device_clear(device *d, const device_memory *memory, size_t bytes) {
    enum { BLOCK = 1 << 20 };
    char *zeros = memory_allocate(BLOCK, 1);
    for (size_t at = 0; at < bytes; at += BLOCK)
        d->functions->write(d, (char *)memory->base + at, zeros, bytes - at < BLOCK ? bytes - at : BLOCK);
    free(zeros);
}
