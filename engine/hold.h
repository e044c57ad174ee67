/* Holding what is being reduced: a choice of speed against bytes. Safety comes from the waits.
 *
 * Bytes that a reduction accesses last could be taken over at once, and what takes them would wait for it. So they are
 * held until the computation of the next turn is through; those of a unit outside of the blocks, which is larger than
 * what follows, until computation worth twice its own reduction has been listed, at most that of four turns. Where
 * flat gradients are the most of what lives, that would cost up to half of the bytes again: so a hold ends at the last
 * turn up to which the bytes that live at once stay within a limit. */
#ifndef FSDP_ENGINE_HOLD_H
#define FSDP_ENGINE_HOLD_H

#include "engine/lifetime.h"

/* Lengthens lives, in the order in which reductions are listed. limit: of the sum of live bytes, each storage rounded
 * up to PLACE_ALIGNMENT, persistent ones left out. Returns how many storages are held for less than the rule wants. */
int32_t hold_reductions(const program *p, lifetime *lives, int64_t limit);

#endif
