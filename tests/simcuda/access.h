/* Checks of single accesses. */
#ifndef SIMCUDA_ACCESS_H
#define SIMCUDA_ACCESS_H

#include "races.h"

namespace simcuda {

/* An access of a kernel's thread to whatever memory: reports what is wrong with it. */
void thread_access(device_thread &t, const void *p, size_t bytes, access_kind kind, const void *site);

/* An access of work that is not a kernel to device memory. unwritten_allowed: a read that may meet unwritten bytes. */
void work_access(const void *p, size_t bytes, access_kind kind, bool unwritten_allowed, const char *name);

} // namespace simcuda

#endif
