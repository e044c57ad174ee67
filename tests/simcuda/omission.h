/* Synchronisation that a test leaves out (simcuda.h), for the calls that would do it. */
#ifndef SIMCUDA_OMISSION_H
#define SIMCUDA_OMISSION_H

#include "cuda_runtime.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the barrier or copy_async_wait at this line is to do nothing. */
bool simcuda_omits_barrier(const char *file, int line);

typedef enum simcuda_omission {
    OMIT_STREAM_WAIT, /* cudaStreamWaitEvent */
    OMIT_HOST_WAIT,   /* cudaStreamSynchronize, cudaDeviceSynchronize, cudaEventSynchronize, and a cudaEventQuery that
                         answers `done` */
    OMIT_STREAMS,     /* of communicators: the N-th and all later ones are taken from their streams */
    OMISSION_COUNT
} simcuda_omission;

/* Counts the call, and tells whether it is the one to leave out. orders: what comes behind it was not ordered behind
 * what it waits for anyway. */
bool simcuda_omits(simcuda_omission kind, const char *call, bool orders);

/* Whether simcuda_omits would say so of the next call. */
bool simcuda_omits_next(simcuda_omission kind);

/* The next stream in a circle of all with the same priority. */
cudaStream_t simcuda_exchanged_stream(cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
