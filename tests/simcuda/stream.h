/* Streams and events, and how calls put work on them. */
#ifndef SIMCUDA_STREAM_H
#define SIMCUDA_STREAM_H

#include "capture.h"
#include "cuda_runtime.h"
#include "work.h"

struct CUstream_st {
    int chain;
    bool blocking; /* ordered with the legacy default stream */
    int priority;
    simcuda::work_handle last;    /* what the next work waits for */
    simcuda::capture *capture;    /* under way, or nullptr */
    simcuda::node_waits frontier; /* of the capture: what its next node waits for */
};

struct CUevent_st {
    bool timed;
    simcuda::work_handle mark; /* of the latest record; nullptr: never recorded */
    simcuda::capture *capture; /* the latest record was captured: nodes that it stands behind */
    uint64_t capture_number;
    simcuda::node_waits nodes;
};

namespace simcuda {

/* The stream behind a handle (NULL: the legacy default stream); nullptr if it is none. */
CUstream_st *stream_of(cudaStream_t handle);

/* Puts work on the stream, or a node into the graph that the stream captures. advance may be called again from the
 * beginning after it has returned true. */
cudaError_t stream_queue(cudaStream_t handle, const std::string &name, std::function<bool()> advance);

/* Waits for everything on the stream. */
void stream_finish(CUstream_st &s);

/* Streams that capture do so no longer. */
void streams_forget();

/* All streams, the legacy default stream included. */
const std::vector<CUstream_st *> &all_streams();

} // namespace simcuda

#endif
