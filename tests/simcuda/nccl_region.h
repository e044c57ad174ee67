/* The memory that the ranks of a simulated NCCL communicator share: a file in /dev/shm, named by the unique id and
 * unlinked once all have joined.
 *
 * A collective goes in rounds. In each a rank posts a piece of its input in its stage with the round's ticket, and when
 * all have posted takes the pieces of the others; a stage is written again only when all have taken. A message between
 * two ranks goes through a box of its own, one piece at a time. */
#ifndef SIMCUDA_NCCL_REGION_H
#define SIMCUDA_NCCL_REGION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { REGION_RANKS = 64, STAGE_BYTES = 256 << 10, BOX_BYTES = 16 << 10 };

/* What a rank was asked to do; ranks compare. */
typedef struct call {
    int kind; /* nccl.c: enum call_kind */
    int type; /* ncclDataType_t */
    uint64_t count;
} call;

typedef struct member {
    _Atomic uint64_t posted, taken; /* tickets of rounds */
    _Atomic bool joined, aborted;
    pid_t process;
    int device;
    call now; /* what the posted round belongs to */
} member;

typedef struct box {
    _Atomic uint64_t written, read; /* pieces */
    call now;
    char data[BOX_BYTES];
} box;

typedef struct region {
    int ranks;
    struct member *members; /* [ranks] */
    char *stages;           /* [ranks][STAGE_BYTES] */
    box *boxes;             /* [from][to] */
    void *base;
    size_t bytes;
} region;

/* Maps the region of that name and waits until all ranks have joined, at most a minute. False: system error. */
bool region_join(region *r, const char *name, int ranks, int rank, int device);
void region_leave(region *r);

/* The first rank whose process has ended or that has aborted; -1: none. */
int region_lost_rank(const region *r);

#endif
