/* Private to comm/: what the ranks of a node see of each other. A rank reads its peers' arenas through mappings of
 * their shared memory, and says how far it is through marks in a control block that all peers map. A peer is opened as
 * /proc/PID/fd/N, so that nothing needs a name in /dev/shm, whose size containers limit. Ranks that are threads of one
 * process read through plain pointers. */
#ifndef FSDP_COMM_WINDOW_H
#define FSDP_COMM_WINDOW_H

#include "comm/failure.h"
#include "comm/hang.h"
#include "comm/world.h"
#include "engine/device/device.h"

typedef struct window window;

/* What a rank has done with one collective. The value of a mark is the latest step, from 1, in which it did so. */
typedef enum mark {
    MARK_ISSUED,  /* its input is ready */
    MARK_REDUCED, /* all_reduce: its slice of the output is ready */
    MARK_READ,    /* it has read what it needs from the others */
    MARK_COUNT
} mark;

/* Collective over the world. near[size]: which ranks are peers (itself included, the relation being symmetric and
 * transitive). `count` collectives. The arena outlives the window. */
bool window_open(world *w, const device_memory *arena, const bool *near, int32_t count, window **opened, error *e);
void window_close(window *v);

void window_mark(window *v, mark m, int32_t index, int64_t step);
bool window_marked(const window *v, int rank, mark m, int32_t index, int64_t step);

/* When the mark was last made, in seconds of the monotonic clock, which is one for a node. */
double window_marked_at(const window *v, int rank, mark m, int32_t index);

/* Where byte `offset` of a peer's arena lies in this process, for reading. */
const void *window_at(const window *v, int rank, int64_t offset);

/* Lets go of a peer's pages, so that they do not count as resident memory of this process. */
void window_drop(const window *v, int rank, int64_t offset, int64_t bytes);

/* The first failure on this node is kept. */
void window_fail(window *v, const failure *f);
bool window_failed(const window *v, failure *f);

/* In a hang: tells the peers where this rank stands, once; takes what a peer has told. */
void window_report(window *v, const hang_report *mine);
bool window_reported(const window *v, int rank, hang_report *report);

/* Whether the process of a rank still runs, peer or not, as far as this node can see: true for ranks of other nodes.
 * Costs a system call. */
bool window_alive(const window *v, int rank);

#endif
