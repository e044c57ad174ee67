/* Packs blocks of bytes that live for a while into as little as can be found. Private to engine/place.
 *
 * No single order is always good for first fit (engine/first_fit.h). It starts with the largest first, at the lowest
 * offsets; what then ends above the bound moves to the front, again and again. If that is not near enough, classes of
 * blocks are put in random orders, and in every second attempt some of them are packed downwards from the bound:
 * activations that pile up and gradients that take their place fit best from two ends. Tries are counted, never timed,
 * and the randomness has a fixed seed: the same blocks get the same offsets on every rank and in every run. */
#ifndef FSDP_ENGINE_PACK_H
#define FSDP_ENGINE_PACK_H

#include <stdint.h>

typedef struct block {
    int32_t first, last; /* positions in the list: alive at both and in between */
    int64_t bytes;       /* > 0 */
    int32_t class;       /* from 0: blocks that are alike; below PACK_CLASSES */
    int64_t address;     /* written by pack */
} block;

enum { PACK_CLASSES = 32 };

/* The largest sum of bytes that live at once: no packing needs less. */
int64_t pack_bound(const block *blocks, int32_t count, int32_t positions);

/* Gives every block its address; returns where the highest ends. */
int64_t pack(block *blocks, int32_t count, int32_t positions);

#endif
