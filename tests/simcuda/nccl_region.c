#include "nccl_region.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { JOIN_SECONDS = 60 };

static double now_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static bool map(region *r, const char *name, int ranks) {
    const size_t n = (size_t)ranks, members = n * sizeof(member), stages = n * STAGE_BYTES, boxes = n * n * sizeof(box);
    const int file = shm_open(name, O_RDWR | O_CREAT, 0600);
    if (file < 0)
        return false;
    *r = (region){.ranks = ranks, .bytes = members + stages + boxes};
    r->base = ftruncate(file, (off_t)r->bytes) == 0 ? mmap(NULL, r->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                                                    : MAP_FAILED;
    close(file);
    if (r->base == MAP_FAILED)
        return false;
    r->members = r->base;
    r->boxes = (box *)((char *)r->base + members);
    r->stages = (char *)r->base + members + boxes;
    return true;
}

static bool all_joined(const region *r) {
    for (int i = 0; i < r->ranks; i++)
        if (!atomic_load(&r->members[i].joined))
            return false;
    return true;
}

bool region_join(region *r, const char *name, int ranks, int rank, int device) {
    if (!map(r, name, ranks))
        return false;
    r->members[rank].process = getpid();
    r->members[rank].device = device;
    atomic_store(&r->members[rank].joined, true);
    const double patience_ends = now_seconds() + JOIN_SECONDS;
    while (!all_joined(r)) {
        if (now_seconds() > patience_ends) {
            shm_unlink(name);
            region_leave(r);
            return false;
        }
        sched_yield();
    }
    shm_unlink(name); /* whoever is first; for the others it is gone already */
    return true;
}

void region_leave(region *r) {
    munmap(r->base, r->bytes);
}

int region_lost_rank(const region *r) {
    for (int i = 0; i < r->ranks; i++)
        if (atomic_load(&r->members[i].aborted) || (kill(r->members[i].process, 0) != 0 && errno == ESRCH))
            return i;
    return -1;
}
