/* The last error of this host thread, as cudaGetLastError gives it. */
#ifndef SIMCUDA_ERROR_H
#define SIMCUDA_ERROR_H

#include "cuda_runtime.h"

namespace simcuda {

/* Remembers the error, if it is one, and returns it. */
cudaError_t give(cudaError_t error);

} // namespace simcuda

#endif
