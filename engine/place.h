/* Gives every tensor its bytes in one arena, before launch and exact to the byte.
 *
 * Persistent tensors lie first, in the order of their creation, so that two programs over the same persistent tensors
 * agree on them. The others are packed by the times in which they live (engine/lifetime.h, engine/pack.h). The same
 * program gets the same offsets on every rank and in every run. */
#ifndef FSDP_ENGINE_PLACE_H
#define FSDP_ENGINE_PLACE_H

#include "engine/program.h"

enum { PLACE_ALIGNMENT = 256 };

/* Adds the workspace tensors that the device asks for. Once, before place. */
void place_workspaces(program *p, device *d);

/* Sets the address of every tensor that an operation accesses, arena_bytes and persistent_bytes. */
void place(program *p);

/* The largest sums of live bytes (aligned, persistent ones included), after place: no packing needs less. */
typedef struct place_bounds {
    int64_t listed; /* when nothing lives longer than from its first to its last access in the list */
    int64_t held;   /* when what is being reduced is held for longer (lifetimes_hold_reductions), as place does */
} place_bounds;
place_bounds place_bounds_of(const program *p);

#endif
