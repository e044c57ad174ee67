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

/* The arena's bytes that no packing undercuts: the largest sum of what lives at once in the order of the list, aligned,
 * persistent tensors included. A sweep of the list; needs no addresses. */
int64_t place_bound(const program *p);

/* Sets the address of every tensor that an operation accesses, and what the program says about its arena. What is being
 * reduced is held (engine/hold.h) while that costs at most a tenth of the bytes that come and go; where the arena would
 * exceed the budget and could keep it otherwise, only while it costs nothing. */
void place(program *p, int64_t budget);

#endif
