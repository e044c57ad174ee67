/* The check of accesses against the last write and the last read of the same bytes (shadow.h). */
#ifndef SIMCUDA_RACES_H
#define SIMCUDA_RACES_H

#include "block.h"

namespace simcuda {

/* Who accesses: a thread of the running block, or a work that is not a kernel. */
struct accessor {
    const device_thread *thread;
    const char *name; /* of the work that is not a kernel */
    const work *owner;
    uint64_t key;          /* cell_key of its accesses */
    uint32_t first_serial; /* of its launch */
    const void *site;      /* in the code */
};
accessor accessor_of(device_thread &t, const void *site);
accessor accessor_of(work &w, const char *name);

enum access_kind { ACCESS_READ, ACCESS_WRITE, ACCESS_ATOMIC, ACCESS_ASYNC_WRITE, ACCESS_ASYNC_LAND };

/* `cells` belong to the 2 bytes at `address` & ~1 and on. shared: only the block's own accesses count, bytes that it
 * did not write are unwritten, and `array` names them. Returns how many bytes this launch had not accessed so before.
 */
size_t cells_access(const accessor &a, cell *cells, uintptr_t address, size_t bytes, access_kind kind,
                    const struct shared_array *array);

/* What is kept aside until the works are settled: readers of concurrent works that one cell has no room for, and the
 * first write of all. */
void races_forget();

} // namespace simcuda

#endif
