/* Derives which operation waits for which across streams, from operands and shared bytes, and nothing more: a wait
 * that another one implies is left out. Needs addresses (engine/place). */
#ifndef FSDP_ENGINE_WAITS_H
#define FSDP_ENGINE_WAITS_H

#include "engine/program.h"

/* Writes wait and release of every operation. */
void waits_derive(program *p);

/* Waits in the program, for people. */
int32_t waits_count(const program *p);

#endif
