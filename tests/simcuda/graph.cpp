#include "capture.h"

#include "error.h"
#include "stream.h"

#include <algorithm>
#include <memory>

struct CUgraph_st {
    std::vector<simcuda::graph_node> nodes;
    size_t chains;
};

struct CUgraphExec_st {
    std::vector<simcuda::graph_node> nodes;
    std::vector<int> chains;       /* in work.h's numbering, by the nodes' */
    simcuda::work_handle last_end; /* a graph does not run beside itself */
};

namespace simcuda {

namespace {

uint64_t captures_begun;

/* All that these nodes wait for, themselves included. */
node_set ancestors(const std::vector<graph_node> &nodes, const node_set &of) {
    node_set all;
    std::vector<size_t> stack(of.begin(), of.end());
    while (!stack.empty()) {
        const size_t n = stack.back();
        stack.pop_back();
        if (all.insert(n).second)
            stack.insert(stack.end(), nodes[n].waits.after.begin(), nodes[n].waits.after.end());
    }
    return all;
}

/* Whether the origin waits for all that was captured. */
bool joined(const capture &c) {
    return ancestors(c.nodes, c.origin->frontier.after).size() == c.nodes.size();
}

void end(capture &c) {
    for (const auto &member : c.chains) {
        member.first->capture = nullptr;
        member.first->frontier = {};
    }
}

} // namespace

void capture_join(capture &c, CUstream_st &s, const node_waits &waits) {
    if (!s.capture) {
        s.capture = &c;
        s.frontier = {};
        c.chains.insert({&s, c.chains.size()});
    }
    s.frontier.join(waits);
}

void capture_add(CUstream_st &s, const std::string &name, std::function<bool()> advance) {
    capture &c = *s.capture;
    c.nodes.push_back({name, std::move(advance), s.frontier, c.chains.at(&s)});
    s.frontier = {{c.nodes.size() - 1}, {}};
}

cudaError_t capture_spoil(capture &c, cudaError_t error) {
    c.invalid = true;
    return give(error);
}

cudaError_t capture_forbids_unsafe_call() {
    for (CUstream_st *s : all_streams())
        if (s->capture && s->capture->mode == cudaStreamCaptureModeGlobal)
            return capture_spoil(*s->capture, cudaErrorStreamCaptureUnsupported);
    return cudaSuccess;
}

} // namespace simcuda

using namespace simcuda;

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
    hold lock;
    refuse_inside_work("cudaStreamBeginCapture");
    CUstream_st *s = stream_of(handle);
    if (!s)
        return give(cudaErrorInvalidResourceHandle);
    if (s == stream_of(nullptr)) /* the legacy default stream cannot be captured */
        return give(cudaErrorStreamCaptureUnsupported);
    if (s->capture)
        return give(cudaErrorInvalidValue);
    capture *c = new capture{++captures_begun, s, mode, false, {}, {}};
    capture_join(*c, *s, {});
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *graph) {
    hold lock;
    CUstream_st *s = stream_of(handle);
    if (!s || !graph)
        return give(cudaErrorInvalidValue);
    *graph = nullptr;
    if (!s->capture)
        return give(cudaErrorInvalidValue);
    if (s->capture->origin != s)
        return capture_spoil(*s->capture, cudaErrorStreamCaptureUnmatched);
    const std::unique_ptr<capture> c(s->capture);
    const bool whole = joined(*c);
    end(*c);
    if (c->invalid)
        return give(cudaErrorStreamCaptureInvalidated);
    if (!whole)
        return give(cudaErrorStreamCaptureUnjoined);
    *graph = new CUgraph_st{c->nodes, c->chains.size()};
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus *status) {
    hold lock;
    CUstream_st *s = stream_of(handle);
    if (!s || !status)
        return give(cudaErrorInvalidValue);
    *status = !s->capture           ? cudaStreamCaptureStatusNone
              : s->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                    : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long) {
    hold lock;
    if (!executable || !graph)
        return give(cudaErrorInvalidValue);
    *executable = new CUgraphExec_st{graph->nodes, {}, nullptr};
    for (size_t i = 0; i < graph->chains; i++)
        (*executable)->chains.push_back(chain_create());
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t handle) {
    hold lock;
    return executable && stream_of(handle) ? cudaSuccess : give(cudaErrorInvalidValue);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t handle) {
    hold lock;
    refuse_inside_work("cudaGraphLaunch");
    CUstream_st *s = stream_of(handle);
    if (!executable || !s)
        return give(cudaErrorInvalidValue);
    if (s->capture)
        return capture_spoil(*s->capture, cudaErrorStreamCaptureUnsupported);
    if (const cudaError_t error = stream_queue(handle, "graph begins", nullptr))
        return error;
    std::vector<work_handle> works, ends = {s->last};
    for (const graph_node &n : executable->nodes) {
        std::vector<work_handle> after = {s->last, executable->last_end}, left_out;
        for (const size_t earlier : n.waits.after)
            after.push_back(works[earlier]);
        for (const size_t earlier : n.waits.left_out)
            left_out.push_back(works[earlier]);
        works.push_back(work_add(executable->chains[n.chain], n.name, n.advance, after, left_out));
    }
    ends.insert(ends.end(), works.begin(), works.end());
    s->last = executable->last_end = work_add(s->chain, "graph ends", nullptr, ends);
    work_poll();
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
    hold lock;
    delete executable; /* what is queued holds its own copies */
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    hold lock;
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, void **nodes, size_t *count) {
    hold lock;
    if (!graph || !count || nodes)
        return give(cudaErrorInvalidValue);
    *count = graph->nodes.size();
    return cudaSuccess;
}
