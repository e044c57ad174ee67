/* A block of a kernel while it runs: its threads, where each stands, and the block's time, by which accesses are
 * ordered (shadow.h). */
#ifndef SIMCUDA_BLOCK_H
#define SIMCUDA_BLOCK_H

#include "cuda_runtime.h"
#include "shadow.h"
#include "work.h"

#include <string>
#include <vector>

namespace simcuda {

enum { WARP_LANES = 32, BLOCK_THREADS = 1024 };

struct kernel_launch {
    std::string name;
    const void *kernel;
    uint3 grid, block;
    size_t shared_bytes;
    void (*call)(const void *arguments);
    std::vector<uint64_t> arguments; /* a copy, aligned */
};

/* Functions at which the lanes of a warp meet. */
enum meeting {
    MEET_NOWHERE,
    MEET_BLOCK_BARRIER,
    MEET_WARP_BARRIER,
    MEET_SHUFFLE,
    MEET_BALLOT,
    MEET_REDUCE,
    MEET_MMA,
    MEET_LDMATRIX
};

struct async_copy {
    uintptr_t shared, global;
    bool zero_fill;
    uint8_t early[16]; /* what it read, if the seed had it read at once */
    bool is_early;
    const void *site;
};

struct device_thread {
    uintptr_t stack; /* of its fiber; FIBER_STACK_BYTES */
    void *saved;     /* stack pointer while it waits */
    uint3 index;
    uint16_t number;
    uint32_t stamp;      /* the block's time at its last barrier */
    uint32_t warp_stamp; /* ... at the last barrier of its whole warp */
    enum { NOT_STARTED, RUNNABLE, WAITING, LEFT } state;
    meeting where; /* WAITING: for whom */
    unsigned mask; /* of lanes that meet */
    const char *file;
    int line;
    void *payload;                  /* what it brings along, on its stack */
    std::vector<async_copy> copies; /* under way, oldest first */
    std::vector<size_t> groups;     /* committed: number of copies in each, oldest first */
};

struct device_block {
    const kernel_launch *launch;
    work *owner;
    uint3 index;
    uint32_t serial, first_serial; /* of this block, of the launch's first */
    uint32_t time, barrier_time;   /* barriers so far; at the last barrier of the block */
    unsigned count;                /* threads */
    unsigned left, at_barrier;     /* threads that returned; that wait at the barrier of the block */
    int barrier_sum;               /* predicates of those */
    int barrier_result;
    std::vector<device_thread> threads;
    std::vector<uint16_t> runnable; /* numbers, unordered */
    std::vector<uint32_t> partial;  /* [thread][lane]: stamp of the latest common barrier of fewer than all lanes */
};

extern thread_local device_thread *running_thread;
extern thread_local device_block *running_block;

/* Runs the whole launch on the calling host thread. */
void launch_run(const kernel_launch &launch, work &owner);

/* The running thread waits until it is made runnable. */
void thread_wait();

/* Ends the running block: goes to the host's stack and delivers the report there. Only on a fiber. */
[[noreturn]] void block_abandon(const std::string &text);

/* The running thread meets the lanes of `mask`: waits until all have come; the last one to come runs complete(), which
 * finds what each brought in the threads' payload. */
void warp_meet(meeting where, unsigned mask, void *payload, const char *file, int line,
               void (*complete)(device_thread *lanes, unsigned mask));

/* "kernel k, block (0,0,0), thread (5,0,0)". */
std::string who(const device_thread &t);
std::string where(const device_thread &t); /* "waits at __syncthreads, file.cu:12" */

inline device_thread *warp_of(const device_thread &t) {
    return &running_block->threads[t.number / WARP_LANES * WARP_LANES];
}

/* Whether an access of the running block's thread `earlier_thread` at `stamp` is ordered before what t does now. */
bool thread_ordered(uint64_t entry, const device_thread &t);

} // namespace simcuda

#endif
