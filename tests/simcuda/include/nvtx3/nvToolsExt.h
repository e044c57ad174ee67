/* NVTX, as far as the project uses it: ranges of the host's time that profilers show. The simulator writes them to a
 * file (SIMCUDA_RANGES, simcuda.h). */
#ifndef SIMCUDA_NVTX3_NVTOOLSEXT_H
#define SIMCUDA_NVTX3_NVTOOLSEXT_H

#ifdef __cplusplus
extern "C" {
#endif

/* Both return the range's depth, from 0. */
int nvtxRangePushA(const char *message);
int nvtxRangePop(void);

#ifdef __cplusplus
}
#endif

#endif
