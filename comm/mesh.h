/* How the ranks of a job are grouped: shard groups hold a model's shards, replica groups hold the same shard. */
#ifndef FSDP_COMM_MESH_H
#define FSDP_COMM_MESH_H

#include "engine/device/operation.h"

/* A shard group is ranks kG .. kG + G-1, G being group_size, which divides the number of ranks. */
typedef struct mesh {
    int rank, ranks, group_size;
} mesh;

/* Ranks first, first + stride, ... (size of them). */
typedef struct mesh_group {
    int first, stride, size;
} mesh_group;

/* The group of that sort that the mesh's rank belongs to. */
mesh_group mesh_group_of(const mesh *m, rank_group sort);

#endif
