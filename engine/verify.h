/* Proves a program safe before it runs, or names what is wrong.
 *
 * It knows nothing of how the waits were derived: from streams, waits and the bytes that operations touch alone it
 * works out what happens before what, and checks over the list twice in a row (one checked step stands for all) that
 *
 *   - every operation has the operands of its kind, whose shapes have the bytes that their tensors declare, inside of
 *     what they are views of and of the arena;
 *   - two accesses to the same bytes, one of them a write, are ordered;
 *   - every read finds the tensor that the operation means, in every byte that is not declared padding: nothing stale,
 *     nothing of another tensor, nothing that was never written;
 *   - bytes that other ranks may be reading (a collective's input) are written only after they are released;
 *   - nothing waits for what comes later: every rank runs the same list, so no rank can wait for another in a circle.
 */
#ifndef FSDP_ENGINE_VERIFY_H
#define FSDP_ENGINE_VERIFY_H

#include "engine/error.h"
#include "engine/program.h"

/* False with EXIT_INTERNAL and the two operations named. */
bool verify(const program *p, error *e);

#endif
