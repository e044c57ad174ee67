/* A GPU that is not there: the CUDA calls that this project uses, executed on the host, adversarially.
 *
 * The same .cu files that nvcc compiles are compiled by the host's C++ compiler against tests/simcuda/include and
 * linked with this library. Whatever CUDA leaves undefined is either picked by a seed or reported. How it works:
 *
 * Host calls (work.h, stream.cpp, copy.cpp). Nothing runs when it is queued. A piece of work (kernel, copy, fill,
 * event, a library's work) waits for the one before it on its stream and for the events that the stream was told to
 * wait for; among all that may run, a seed picks, and a seed also decides whether work runs early or only when the host
 *   synchronises (or makes no call for 50 ms: progress.h). Copies from pinned memory read it when they run.
 * Kernels (block.cpp, fiber.h). Blocks run one after another in an order picked by the seed. A block's threads are
 * fibers: each runs until it meets a barrier or a function of the whole warp, then the seed picks who goes on. Threads
 * that never all meet (one returned early, some wait elsewhere) are reported. Loads and stores (access.cpp). The .cu
 * files are compiled with -fsanitize=thread, which calls __tsan_readN and
 *   __tsan_writeN before each access to memory that is not a local variable; no thread sanitizer is linked: those
 *   functions are ours. Each access is checked: is it within an allocation or a shared array, was it written before,
 *   does another thread touch it without a barrier between? Arrays of fixed size are also checked by -fsanitize=bounds,
 *   whose handler is ours too.
 * Races (shadow.h). Beside each 2 bytes of global and shared memory stand the last write and the last read: which block
 *   of which work, which thread, and how many barriers it had passed. Threads of a block are ordered by __syncthreads,
 *   lanes of a warp also by __syncwarp; shuffles and votes order nothing (CUDA says that they are no memory barrier).
 *   Blocks of a kernel are not ordered, nor do atomics order other accesses. Work on different streams is ordered by
 *   events and by the host's synchronisation only: a vector clock for each stream tells, so that a missing wait is
 * found in whichever order the work has run. Asynchronous copies to shared memory (copy_async.cpp) land when their
 * thread waits, or earlier if the seed says so; touching their bytes before the wait is reported.
 *
 * A misuse is reported on standard error with kernel, block, thread, array, source line and seed, and ends the process
 * with code 86; a test catches it instead (simcuda_catch).
 *
 * Environment: SIMCUDA_SEED (0), SIMCUDA_MEMORY (bytes, or with K, M, G; 8G), SIMCUDA_PINNED (bytes of host memory that
 * the host has to give for pinning, likewise; no limit), SIMCUDA_DEVICES (local ranks),
 * SIMCUDA_ARCHITECTURE (80, 86, 90 or 100: limits of shared memory; 80), SIMCUDA_DRIVER (version as
 * cudaDriverGetVersion gives it; 13000), SIMCUDA_RACES (0: races are not looked for, which saves 8 bytes of shadow per
 * byte and much time), SIMCUDA_OMIT (cudaStreamWaitEvent:N
 * and likewise for what waits on the host: the N-th such call does nothing; 0: none of them does; ncclCommInitRank:N: a
 * communicator works on another stream; for tests of whether that is noticed, so it is said on standard error, and at
 * the process's end whether all work has kept its order), SIMCUDA_RANGES (a file that gets a line for each piece of
 * work as it is queued, and above it one for each of NVTX's ranges that it lies in), SIMCUDA_NCCL_ABSENT (a rank that
 * never comes to join a communicator), SIMCUDA_NCCL_SLOW (given or searched: collectives of communicators with a graph
 * file, or without, take 5 ms longer), SIMCUDA_NCCL_RINGS (other: NCCL writes that it uses another ring than it was
 * given), SIMCUDA_EPILOGUES (bias: cuBLASLt has no algorithm for others).
 *
 * What it does not do: device memory seen by other processes, kernels that talk between blocks, device code that calls
 * the host, textures, cooperative groups. Uninitialised local variables are the compiler's warning to give. A shared
 * array must not be larger than CUDA allows for static arrays, 48 KB; nvcc refuses those. */
#ifndef SIMCUDA_H
#define SIMCUDA_H

#include "cuda_runtime.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* For libraries that queue work on streams (cuBLASLt, NCCL). */

typedef struct simcuda_work {
    const char *name;             /* copied */
    bool (*advance)(void *state); /* does the work, or part of it; false: not finished yet (waits for another process),
                                     call again. Once it has returned true, the next call begins anew: a graph that
                                     captured the work is launched again */
    void (*destroy)(void *state); /* may be NULL. Called when no more call of advance can come */
    void *state;
} simcuda_work;

/* Runs later, in stream order, when the seed's choice falls on it; captured by graphs. */
void simcuda_queue(cudaStream_t stream, simcuda_work work);

/* Inside `advance`: what the work touches, just before it does. Both check that the bytes are in one allocation and no
 * other work races for them, and count them. */
void simcuda_read(const void *p, size_t bytes, const char *who); /* checks that all were written before */
void simcuda_write(void *p, size_t bytes, const char *who);      /* from now on they count as written */
void simcuda_move(const void *p, size_t bytes, const char *who); /* a read that may meet unwritten bytes (padding) */
bool simcuda_is_device(const void *p);                           /* in device memory; host memory needs no calls */

/* Reports a misuse (what, where) and ends the process with code 86, or returns to simcuda_catch. */
#ifdef __cplusplus
[[noreturn]]
#else
_Noreturn
#endif
void simcuda_refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

uint64_t simcuda_run_seed(void);
uint64_t simcuda_random(void); /* from the run's seed */

cudaStream_t simcuda_another_stream(cudaStream_t stream); /* the next in a circle of all with the same priority */

/* For tests. */

/* Starts again as if the process were new with this seed: forgets queued work, the last error and captures.
 * Memory, streams and events stay. */
void simcuda_seed(uint64_t seed);

/* Runs body(state). A misuse ends it early: true, with the report in `text`; the queued work is forgotten. Not nested.
 */
bool simcuda_catch(void (*body)(void *state), void *state, char *text, size_t bytes);

/* Bytes of device memory that nothing may touch until allowed again (what surrounds an operand), and bytes that count
 * as never written. */
void simcuda_forbid(void *p, size_t bytes);
void simcuda_allow(void *p, size_t bytes);
void simcuda_uninitialise(void *p, size_t bytes);

/* Leaves out barriers of kernels (__syncthreads, __syncwarp, copy_async_wait), to see whether they are missed. Each
 * thread asks `keeps` at each; false: it goes on at once. NULL: all are kept. */
void simcuda_filter_barriers(bool (*keeps)(void *state, const char *file, int line), void *state);

/* Kernels run with at most so many blocks in x, as on a grid too large for one launch: only for kernels that loop with
 * the grid as stride. 0: with as many as they were launched with. */
void simcuda_limit_blocks(unsigned blocks);

/* What kernels and libraries did to global memory between start and stop. */
typedef struct simcuda_counters {
    uint64_t launches;                                    /* kernels */
    uint64_t read_bytes, written_bytes;                   /* as asked for by threads, every time */
    uint64_t distinct_read_bytes, distinct_written_bytes; /* each byte once a kernel; needs SIMCUDA_RACES */
    uint64_t accesses, wide_accesses;                     /* by threads; wide: of 16 bytes, aligned */
    uint64_t wide_bytes;                                  /* bytes that wide accesses moved */
    uint64_t sector_bytes; /* 32 bytes for each sector that a warp's access touches: what moves */
} simcuda_counters;
void simcuda_counters_start(void);
simcuda_counters simcuda_counters_stop(void); /* waits for all queued work */

#ifdef __cplusplus
}
#endif

#endif
