/* Private to the CPU device and comm/: memory that several processes share, as files that each maps.
 *
 * Mappings start at a multiple of HUGE_PAGE, so that memory which the system holds in huge pages is mapped as such:
 * one entry of the page table instead of 512. For a rank that reads another's arena and lets go of it again this is
 * most of the time that is not copying. */
#ifndef FSDP_ENGINE_DEVICE_CPU_SHARED_MEMORY_H
#define FSDP_ENGINE_DEVICE_CPU_SHARED_MEMORY_H

#include "engine/device/cpu/pool.h"
#include "engine/device/device.h"

/* Bytes; of x86-64, and of arm64 with 4 KB pages. A multiple of every system's ordinary pages. */
enum { HUGE_PAGE = 2 << 20 };

/* Memory whose handle is a file that other processes can open. Pages come into being, as zeros, when they are touched.
 */
bool shared_memory_create(size_t bytes, device_memory *memory, error *e);
void shared_memory_release(device_memory *memory);

/* `protection` as for mmap. NULL: errno says why. Unmapped with munmap. */
void *shared_memory_map(int file, size_t bytes, int protection);

/* Puts a mapping's pages into huge ones, contents kept, where the system has any (Linux 6.1, whatever its settings for
 * shared memory; elsewhere by its settings). Pages that nobody has touched yet come into being, as zeros. */
void shared_memory_enlarge_pages(pool *p, void *base, size_t bytes);

#endif
