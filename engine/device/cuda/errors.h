/* CUDA's errors as errors of the program. */
#ifndef FSDP_ENGINE_DEVICE_CUDA_ERRORS_H
#define FSDP_ENGINE_DEVICE_CUDA_ERRORS_H

#include "engine/error.h"

#include <cuda_runtime.h>

/* Whether a call succeeded; else the error says which call it was, CUDA's name and words for what happened, and what
 * can be done. `doing`: the call, or the operation that was being queued. */
bool cuda_good(cudaError_t found, const char *doing, error *e);

/* What was asked of the GPU since the last look: launches report here, and so does what went wrong on the GPU itself.
 */
bool cuda_launched(const char *doing, error *e);

#endif
