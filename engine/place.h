/* Gives every tensor its bytes in one arena, before launch and exact to the byte.
 *
 * Persistent tensors lie first, in the order of their creation, so that two programs over the same persistent tensors
 * agree on them. The others are packed by lifetime: first fit at the lowest offset, by decreasing size, then repaired
 * (what ends above the bound moves to the front of the order) and, if that is not enough, from orders shuffled by a
 * fixed seed. Tries are counted, never timed: every rank and every run gets the same offsets. */
#ifndef FSDP_ENGINE_PLACE_H
#define FSDP_ENGINE_PLACE_H

#include "engine/program.h"

enum { PLACE_ALIGNMENT = 256 };

/* Adds the workspace tensors that the device asks for. Once, before place. */
void place_workspaces(program *p, device *d);

/* Sets the address of every tensor, arena_bytes and persistent_bytes. */
void place(program *p);

/* The largest sum of live bytes (aligned, persistent ones included): no packing needs less. */
int64_t place_bound(const program *p);

#endif
