/* Plays programs with a hash in the place of every number: what a program computes is then what it read, in which
 * order of accumulation, from which bytes. An operation touches the bytes that the shapes of its operands have. */
#ifndef FSDP_TESTS_SUPPORT_REPLAY_H
#define FSDP_TESTS_SUPPORT_REPLAY_H

#include "engine/program.h"

enum { REPLAY_ORDERS = 200 };

typedef struct replay replay;

/* What the program computes when it runs as listed; the program must outlive the replay. Operations keep what they do
 * from now on, whatever the program says of their operands later: kernels do not change with declarations. */
replay *replay_create(const program *p);
void replay_destroy(replay *r);

/* Operations i and i + 1 have changed places. */
void replay_swapped(replay *r, int32_t i);

/* Whether the program, changed since, computes something else in one of so many orders that its streams and waits
 * allow, or in that of the list. */
bool replay_differs(const replay *r, int orders);

#endif
