#include "comm/window.h"

#include "comm/patience.h"
#include "comm/world_state.h"
#include "engine/checked.h"
#include "engine/device/cpu/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CACHE_LINE = 64 };

typedef enum failure_state { FAILURE_NONE, FAILURE_IN_WRITING, FAILURE_WRITTEN } failure_state;

/* In shared memory: this header, then a place for the report of each peer, then a row of marks per peer, each starting
 * a cache line. */
typedef struct control {
    _Alignas(CACHE_LINE) atomic_int failure_state;
    atomic_int users; /* mappings in use by threads of one process */
    _Alignas(CACHE_LINE) failure failure;
} control;

typedef struct reported {
    _Alignas(CACHE_LINE) atomic_bool written;
    hang_report report;
} reported;

typedef struct marked {
    _Atomic int64_t step;
    _Atomic double at;
} marked;

/* What a rank tells the others at opening. */
typedef struct introduction {
    long process;
    int arena_file, control_file;
    void *arena, *control; /* for ranks in the same process */
    int64_t arena_bytes;
} introduction;

typedef struct peer {
    long process;      /* 0: not to be seen from here */
    const char *arena; /* NULL: not a peer */
    int64_t bytes;
    int row;     /* in the control block */
    bool mapped; /* here, from another process */
} peer;

struct window {
    int rank, size;
    peer *peers; /* [size] */
    int peer_count;
    bool one_process;
    int32_t count;
    control *control;
    size_t control_bytes;
};

static int64_t row_bytes(int32_t count) {
    return round_up(must_multiply(count, MARK_COUNT * (int64_t)sizeof(marked)), CACHE_LINE);
}

static reported *reports_of(const window *v) {
    return (reported *)(v->control + 1);
}

static marked *mark_of(const window *v, int rank, mark m, int32_t index) {
    char *rows = (char *)(reports_of(v) + v->peer_count);
    char *row = rows + v->peers[rank].row * row_bytes(v->count);
    return (marked *)row + (int64_t)index * MARK_COUNT + m;
}

void window_mark(window *v, mark m, int32_t index, int64_t step) {
    marked *own = mark_of(v, v->rank, m, index);
    atomic_store_explicit(&own->at, patience_clock(), memory_order_relaxed);
    atomic_store_explicit(&own->step, step, memory_order_release);
}

bool window_marked(const window *v, int rank, mark m, int32_t index, int64_t step) {
    return atomic_load_explicit(&mark_of(v, rank, m, index)->step, memory_order_acquire) >= step;
}

double window_marked_at(const window *v, int rank, mark m, int32_t index) {
    return atomic_load_explicit(&mark_of(v, rank, m, index)->at, memory_order_relaxed);
}

const void *window_at(const window *v, int rank, int64_t offset) {
    return v->peers[rank].arena + offset;
}

void window_drop(const window *v, int rank, int64_t offset, int64_t bytes) {
    const peer *p = &v->peers[rank];
    if (!p->mapped || bytes <= 0)
        return;
    /* Whole huge pages, outwards, since half of one is not to be had: who still reads the rest takes it back. */
    int64_t from = offset / HUGE_PAGE * HUGE_PAGE, to = minimum(round_up(offset + bytes, HUGE_PAGE), p->bytes);
    madvise((void *)(uintptr_t)(p->arena + from), (size_t)(to - from), MADV_DONTNEED);
}

void window_fail(window *v, const failure *f) {
    int none = FAILURE_NONE;
    if (!atomic_compare_exchange_strong(&v->control->failure_state, &none, FAILURE_IN_WRITING))
        return;
    v->control->failure = *f;
    atomic_store_explicit(&v->control->failure_state, FAILURE_WRITTEN, memory_order_release);
}

bool window_failed(const window *v, failure *f) {
    if (atomic_load_explicit(&v->control->failure_state, memory_order_acquire) != FAILURE_WRITTEN)
        return false;
    *f = v->control->failure;
    return true;
}

void window_report(window *v, const hang_report *mine) {
    reported *place = &reports_of(v)[v->peers[v->rank].row];
    place->report = *mine;
    atomic_store_explicit(&place->written, true, memory_order_release);
}

bool window_reported(const window *v, int rank, hang_report *report) {
    const reported *place = &reports_of(v)[v->peers[rank].row];
    if (!atomic_load_explicit(&place->written, memory_order_acquire))
        return false;
    *report = place->report;
    return true;
}

/* A process that ended but was not yet waited for by its parent still has a number: its state tells. */
static bool process_runs(long process) {
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%ld/stat", process);
    FILE *f = fopen(path, "r");
    if (f == NULL)
        return errno != ENOENT; /* not to be read is not to be dead */
    size_t length = fread(line, 1, sizeof line - 1, f);
    fclose(f);
    line[length] = '\0';
    const char *name_end = strrchr(line, ')');
    return name_end != NULL && strchr("ZX", name_end[2]) == NULL;
}

bool window_alive(const window *v, int rank) {
    return v->one_process || v->peers[rank].process == 0 || process_runs(v->peers[rank].process);
}

static int owner_of(const bool *near) {
    int owner = 0;
    while (!near[owner])
        owner++;
    return owner;
}

/* The lowest peer makes the control block. */
static bool create_control(window *v, introduction *mine, error *e) {
    int file = memfd_create("fsdp_train control", MFD_CLOEXEC);
    void *base = NULL;
    if (file >= 0 && ftruncate(file, (off_t)v->control_bytes) == 0)
        base = shared_memory_map(file, v->control_bytes, PROT_READ | PROT_WRITE);
    if (base == NULL) {
        error_set_own(e, EXIT_LAUNCH, "cannot create %zu bytes of shared memory: %s", v->control_bytes,
                      strerror(errno));
        if (file >= 0)
            close(file);
        return false;
    }
    v->control = base;
    atomic_fetch_add(&v->control->users, 1);
    mine->control = base;
    mine->control_file = file;
    return true;
}

/* Maps a file of another process. */
static void *map_file(int rank, long process, int number, int64_t bytes, int protection, error *e) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", process, number);
    int file = open(path, (protection & PROT_WRITE ? O_RDWR : O_RDONLY) | O_CLOEXEC);
    void *base = NULL;
    if (file >= 0)
        base = shared_memory_map(file, (size_t)bytes, protection);
    if (base == NULL)
        error_set_own(
            e, EXIT_LAUNCH,
            "cannot map the memory of rank %d (%s): %s; the ranks of a node must run under one user and see each "
            "other's processes in /proc",
            rank, path, strerror(errno));
    if (file >= 0)
        close(file);
    return base;
}

/* Ranks of this node that are no peers are seen as well, unless they run in a container of their own. */
static void see_processes(window *v, const world *w, const introduction *all) {
    for (int r = 0; r < v->size; r++)
        if (w->node_of[r] == w->node && process_runs(all[r].process))
            v->peers[r].process = all[r].process;
}

static bool join(window *v, const bool *near, const introduction *all, error *e) {
    int rows = 0, owner = owner_of(near);
    for (int r = 0; r < v->size; r++) {
        if (!near[r])
            continue;
        peer *p = &v->peers[r];
        p->bytes = all[r].arena_bytes;
        p->row = rows++;
        p->mapped = r != v->rank && !v->one_process;
        if (!p->mapped)
            p->arena = all[r].arena;
        else
            p->arena = map_file(r, all[r].process, all[r].arena_file, p->bytes, PROT_READ, e);
        if (p->arena == NULL)
            return false;
    }
    if (v->rank == owner)
        return true;
    v->control = v->one_process ? all[owner].control
                                : map_file(owner, all[owner].process, all[owner].control_file,
                                           (int64_t)v->control_bytes, PROT_READ | PROT_WRITE, e);
    if (v->control != NULL)
        atomic_fetch_add(&v->control->users, 1);
    return v->control != NULL;
}

static bool introduce(window *v, world *w, const device_memory *arena, const bool *near, introduction *all, error *e) {
    introduction mine = {.process = (long)getpid(),
                         .arena_file = arena->handle,
                         .arena = arena->base,
                         .arena_bytes = (int64_t)arena->bytes,
                         .control_file = -1};
    if (v->peer_count > 1 && !v->one_process && arena->handle < 0)
        error_set(e, EXIT_LAUNCH, "this device's memory cannot be shared with other processes");
    else if (owner_of(near) == w->rank)
        create_control(v, &mine, e);
    world_all_gather(w, &mine, sizeof mine, all);
    bool fine = world_agree(w, e);
    if (fine) {
        see_processes(v, w, all);
        join(v, near, all, e);
        fine = world_agree(w, e);
    }
    if (mine.control_file >= 0)
        close(mine.control_file); /* all have mapped it */
    return fine;
}

bool window_open(world *w, const device_memory *arena, const bool *near, int32_t count, window **opened, error *e) {
    window *v = memory_allocate(1, sizeof *v);
    *v = (window){.rank = w->rank, .size = w->size, .one_process = w->state->one_process, .count = count};
    v->peers = memory_allocate((size_t)w->size, sizeof *v->peers);
    for (int r = 0; r < w->size; r++)
        v->peer_count += near[r];
    v->control_bytes =
        sizeof(control) + (size_t)must_multiply(v->peer_count, (int64_t)sizeof(reported) + row_bytes(count));
    introduction *all = memory_allocate((size_t)w->size, sizeof *all);
    bool fine = introduce(v, w, arena, near, all, e);
    free(all);
    if (!fine) {
        window_close(v);
        return false;
    }
    *opened = v;
    return true;
}

void window_close(window *v) {
    for (int r = 0; r < v->size; r++)
        if (v->peers[r].mapped && v->peers[r].arena != NULL)
            munmap((void *)(uintptr_t)v->peers[r].arena, (size_t)v->peers[r].bytes);
    if (v->control != NULL) {
        int users = atomic_fetch_sub(&v->control->users, 1);
        if (!v->one_process || users == 1)
            munmap(v->control, v->control_bytes);
    }
    free(v->peers);
    free(v);
}
