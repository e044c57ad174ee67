/* Asynchronous copies from global to shared memory. A copy is under way from copy_async_16 until its thread has waited
 * for its group; meanwhile its 16 bytes belong to nobody. The seed decides whether it reads its source at once or when
 * it lands. */
#ifndef SIMCUDA_COPY_ASYNC_H
#define SIMCUDA_COPY_ASYNC_H

namespace simcuda {

struct device_thread;

/* A thread leaves: copies that it never waited for are a misuse. */
void copies_check_left(const device_thread &t);

} // namespace simcuda

#endif
