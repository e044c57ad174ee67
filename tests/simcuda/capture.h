/* Streams captured into a graph: nodes instead of work, and what each node waits for. */
#ifndef SIMCUDA_CAPTURE_H
#define SIMCUDA_CAPTURE_H

#include "cuda_runtime.h"

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace simcuda {

typedef std::set<size_t> node_set;

/* What a node waits for, and what it was to wait for as well (intent.h). */
struct node_waits {
    node_set after, left_out;
    void join(const node_waits &other) {
        after.insert(other.after.begin(), other.after.end());
        left_out.insert(other.left_out.begin(), other.left_out.end());
    }
    void leave_out(const node_waits &other) {
        left_out.insert(other.after.begin(), other.after.end());
        left_out.insert(other.left_out.begin(), other.left_out.end());
    }
};

struct graph_node {
    std::string name;
    std::function<bool()> advance;
    node_waits waits;
    size_t chain; /* which captured stream, from 0 */
};

struct capture {
    uint64_t number; /* counts captures */
    CUstream_st *origin;
    cudaStreamCaptureMode mode;
    bool invalid;
    std::vector<graph_node> nodes;
    std::map<CUstream_st *, size_t> chains; /* of the streams that take part */
};

/* The stream takes part in the capture from now on, behind these nodes. */
void capture_join(capture &c, CUstream_st &s, const node_waits &waits);
void capture_add(CUstream_st &s, const std::string &name, std::function<bool()> advance);

/* A call that the capture forbids was made: it is invalid from now on. Gives the error. */
cudaError_t capture_spoil(capture &c, cudaError_t error);

/* A call that must not be made while any stream of the process captures in global mode; success if none does. */
cudaError_t capture_forbids_unsafe_call();

} // namespace simcuda

#endif
