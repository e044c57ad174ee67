#include "engine/device/cpu/shared_memory.h"

#include "engine/checked.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    TILE_HUGE_PAGES = 32, /* one thread's piece */
    COLLAPSE = 25         /* MADV_COLLAPSE of Linux 6.1, which C libraries of that time do not name */
};

void *shared_memory_map(int file, size_t bytes, int protection) {
    const size_t reserved = bytes + HUGE_PAGE;
    char *start = mmap(NULL, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED)
        return NULL;
    const size_t before = (HUGE_PAGE - (uintptr_t)start % HUGE_PAGE) % HUGE_PAGE;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), mapped = (bytes + page - 1) / page * page;
    char *base = mmap(start + before, bytes, protection, MAP_SHARED | MAP_FIXED, file, 0);
    if (base == MAP_FAILED) {
        munmap(start, reserved);
        return NULL;
    }
    if (before > 0)
        munmap(start, before);
    munmap(base + mapped, reserved - before - mapped);
    return base;
}

static size_t mapped_bytes(size_t bytes) {
    return bytes > 0 ? bytes : 1;
}

bool shared_memory_create(size_t bytes, device_memory *memory, error *e) {
    const size_t mapped = mapped_bytes(bytes);
    const int file = memfd_create("fsdp_train arena", MFD_CLOEXEC);
    if (file < 0)
        return error_set_own(e, EXIT_LAUNCH, "cannot create shared memory: memfd_create: %s", strerror(errno));
    void *base = ftruncate(file, (off_t)mapped) == 0 ? shared_memory_map(file, mapped, PROT_READ | PROT_WRITE) : NULL;
    if (base == NULL) {
        error_set_own(e, EXIT_LAUNCH, "cannot map %zu bytes of shared memory: %s", bytes, strerror(errno));
        close(file);
        return false;
    }
    *memory = (device_memory){.base = base, .bytes = bytes, .handle = file};
    return true;
}

void shared_memory_release(device_memory *memory) {
    munmap(memory->base, mapped_bytes(memory->bytes));
    close(memory->handle);
    *memory = (device_memory){.handle = -1};
}

typedef struct mapping {
    char *base;
    int64_t huge_pages; /* whole ones */
} mapping;

/* A huge page can be made of ordinary ones, not of a hole: a read fills it. */
static void enlarge_tile(void *context, int64_t tile, int thread) {
    (void)thread;
    const mapping *m = context;
    const int64_t first = tile * TILE_HUGE_PAGES, count = minimum(TILE_HUGE_PAGES, m->huge_pages - first);
    char *from = m->base + first * HUGE_PAGE;
    for (int64_t i = 0; i < count; i++)
        (void)*(volatile char *)(from + i * HUGE_PAGE);
    madvise(from, (size_t)(count * HUGE_PAGE), COLLAPSE);
}

void shared_memory_enlarge_pages(pool *p, void *base, size_t bytes) {
    mapping m = {.base = base, .huge_pages = (int64_t)(bytes / HUGE_PAGE)};
    madvise(base, bytes, MADV_HUGEPAGE);
    if (m.huge_pages > 0)
        pool_run(p, divide_up(m.huge_pages, TILE_HUGE_PAGES), enlarge_tile, &m);
}
