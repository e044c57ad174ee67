/* Private to comm/: who is in a collective's group, and which part of the tensor is whose. Members are numbered
 * 0 .. group_size-1 in the order of their ranks. */
#ifndef FSDP_COMM_PARTS_H
#define FSDP_COMM_PARTS_H

#include "comm/collectives.h"

static inline int rank_of(const collective *o, int member) {
    return o->group_first + member * o->group_stride;
}
static inline int member_of(const collective *o, int rank) {
    return (rank - o->group_first) / o->group_stride;
}

/* Whether it adds up parts (reduce_scatter, all_reduce) or only moves them. */
static inline bool sums(const collective *o) {
    return o->kind != OPERATION_ALL_GATHER;
}

/* Elements from the start of the whole tensor to the part of a member; for member == group_size, its end. An
 * all_reduce is a reduce_scatter and an all_gather of slices, which are whole cache lines as far as the count allows;
 * the last ones may be empty. */
int64_t part_start(const collective *o, int member);
int64_t part_count(const collective *o, int member);

/* Bytes of workspace for the part of one far member: of the largest part, which is the first. */
int64_t slot_bytes(const collective *o);

/* Whether this rank's part of an all_gather or a reduce_scatter lies at its place in the whole tensor. Then its offset
 * in the arena differs from rank to rank, and the whole tensor's tells where each member's part is. */
bool part_in_place(const collective *o, int member);

/* Near: reached through the window, or this rank itself. */
bool is_near(const world *w, transport how, int rank);

/* A collective that contradicts the contract is an internal fault. */
void parts_check(const world *w, const collective *list, int32_t count, const device_memory *arena);

/* Whether all ranks have the same list. Collective over the world; the same error on every rank. */
bool parts_agree(world *w, const collective *list, int32_t count, error *e);

#endif
