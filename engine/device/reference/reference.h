/* Plain kernels that say what every computing kind of operation.h means, for reading and for tests: the fast kernels
 * of each device are compared with them, and their backward rules with finite differences of their forward ones.
 *
 * One source serves single and double precision: the floating-point tensors of a launch are all fp32 or all fp64
 * (save those that operation.h declares fp64 always). Long sums are kept in double in both. Host memory, one thread;
 * no workspace: attention takes its scratch from the heap. */
#ifndef FSDP_ENGINE_DEVICE_REFERENCE_REFERENCE_H
#define FSDP_ENGINE_DEVICE_REFERENCE_REFERENCE_H

#include "engine/device/operation.h"

/* Executes one operation; copies and collectives are not among its kinds (an internal fault). */
void reference_launch(const launch *l);

/* The two precisions, for reference_launch. */
void reference_launch_f32(const launch *l);
void reference_launch_f64(const launch *l);

#endif
