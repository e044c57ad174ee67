/* The rings through a node's GPUs, from how it is wired, for NCCL and for who works on which GPU. */
#ifndef FSDP_LAUNCH_TOPOLOGY_RINGS_H
#define FSDP_LAUNCH_TOPOLOGY_RINGS_H

#include "comm/collectives.h"
#include "launch/config.h"
#include "launch/plan.h"

#include <stdio.h>

typedef struct rings {
    ring_graph graph;   /* without files: NCCL finds its own */
    char *given, *used; /* files that are removed again; NULL: none */
    bool doubted;       /* ring = auto: whether they are better than NCCL's own is to be measured */
    int gpu;            /* of this rank: the first ring's GPU of its number on the node; without rings its number */
    char *text;         /* for the plan; NULL: nothing to say */
} rings;

/* Finds them where [shard] ring asks for them, ranks work on GPUs, and there are several on the node. Collective, after
 * config_check. EXIT_USAGE, EXIT_LAUNCH: the topology cannot be read or, with ring = hwloc, has not as many GPUs as the
 * node has ranks, or has no rings; ring = auto leaves those to NCCL, and the text says why. */
bool rings_find(const config *c, world *w, rings *found, error *e);

/* Lets go of them where the device does not communicate by itself. Where they are doubted: measures them against NCCL's
 * own with what a step exchanges for a typical unit, on the device, which overwrites the arena, keeps the better, and
 * prints both figures. Collective. */
bool rings_choose(rings *r, const plan *p, world *w, device *d, const device_memory *arena, double timeout, error *e);

/* When the communicators are open: whether NCCL says that it uses them. Prints that it does, or sets *warning, which
 * the caller frees. What NCCL has written goes where the user has told it to write. Collective. */
void rings_compare(rings *r, world *w, char **warning);

/* Removes the files. */
void rings_release(rings *r);

#endif
