/* Which device a run computes on: what device.kind asks for, and what the machine has. */
#ifndef FSDP_LAUNCH_DEVICE_CHOICE_H
#define FSDP_LAUNCH_DEVICE_CHOICE_H

#include "comm/world.h"
#include "engine/device/device.h"
#include "launch/config.h"

/* Opens this rank's device. kind = auto: a GPU where there is a driver and one can be used, else the CPU; *warning then
 * says why a driver that is there was not used (freed by the caller; NULL: nothing to say). All ranks must get the same
 * kind, and each its own GPU. threads: for a device that computes with them; gpu: of those that this process sees.
 * Collective: on failure every rank has the same error. */
bool device_choose(const config *c, world *w, int threads, int gpu, device **opened, char **warning, error *e);

/* The same for a plan of which nothing will run: device.kind = cuda needs no GPU. Local. */
bool device_choose_to_plan(const config *c, device **opened, error *e);

#endif
