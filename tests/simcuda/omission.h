/* Synchronisation that a test leaves out (simcuda.h), for the calls that would do it. */
#ifndef SIMCUDA_OMISSION_H
#define SIMCUDA_OMISSION_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the barrier or copy_async_wait at this line is to do nothing. */
bool simcuda_omits_barrier(const char *file, int line);

/* Calls that can be left out. Of ncclCommInitRank that is the communicator's stream: it works on another one. */
typedef enum simcuda_waiting_call {
    OMIT_STREAM_WAIT_EVENT,
    OMIT_STREAM_SYNCHRONIZE,
    OMIT_DEVICE_SYNCHRONIZE,
    OMIT_EVENT_SYNCHRONIZE,
    OMIT_EVENT_QUERY, /* that answers `done` */
    OMIT_COMMUNICATOR,
    OMIT_COUNT
} simcuda_waiting_call;

/* Whether this call is to be left out; counts it. */
bool simcuda_omits(simcuda_waiting_call call);

/* What simcuda_omits would say, without counting. */
bool simcuda_omits_next(simcuda_waiting_call call);

/* Whether a call that orders work is left out somewhere in the run. */
bool simcuda_omits_waits(void);

#ifdef __cplusplus
}
#endif

#endif
