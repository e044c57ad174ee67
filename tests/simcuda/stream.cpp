#include "stream.h"

#include "error.h"
#include "omission.h"
#include "ranges.h"
#include "report.h"
#include "simcuda.h"

#include <algorithm>

namespace simcuda {

namespace {

std::vector<CUstream_st *> &streams() {
    static std::vector<CUstream_st *> &all = *new std::vector<CUstream_st *>{
        new CUstream_st{chain_create(), true, 0, nullptr, nullptr, {}}}; /* never destroyed: progress.h */
    return all;
}

CUstream_st &legacy() {
    return *streams()[0];
}

std::vector<CUevent_st *> &events() {
    static std::vector<CUevent_st *> &all = *new std::vector<CUevent_st *>;
    return all;
}

bool is_event(cudaEvent_t event) {
    return std::find(events().begin(), events().end(), event) != events().end();
}

/* What new work on the stream waits for: the stream's own, and what the legacy default stream orders. */
std::vector<work_handle> predecessors(const CUstream_st &s) {
    std::vector<work_handle> after = {s.last};
    if (&s == &legacy()) {
        for (const CUstream_st *other : streams())
            if (other->blocking && other != &s)
                after.push_back(other->last);
    } else if (s.blocking) {
        after.push_back(legacy().last);
    }
    return after;
}

void add(CUstream_st &s, const std::string &name, std::function<bool()> advance, std::vector<work_handle> after) {
    s.last = work_add(s.chain, name, std::move(advance), after);
    work_poll();
}

/* The stream's work goes on without having waited for the event. */
void leave_out_wait(CUstream_st &s, const CUevent_st &event) {
    s.last = work_add(s.chain, "wait left out", nullptr, predecessors(s), {event.mark});
}

/* So does the host, without having waited for the stream. */
void leave_out_wait(const CUstream_st &s) {
    for (const work_handle &w : predecessors(s))
        work_leave_out(w);
}

/* A call that waits or asks is not allowed on a stream that captures. */
cudaError_t refuse_capturing(CUstream_st *s) {
    return s->capture ? capture_spoil(*s->capture, cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}

cudaError_t create(cudaStream_t *stream, unsigned flags, int priority) {
    hold lock;
    refuse_inside_work("cudaStreamCreate");
    if (!stream || (flags & ~cudaStreamNonBlocking))
        return give(cudaErrorInvalidValue);
    *stream = new CUstream_st{chain_create(), !(flags & cudaStreamNonBlocking), priority, nullptr, nullptr, {}};
    streams().push_back(*stream);
    return cudaSuccess;
}

} // namespace

CUstream_st *stream_of(cudaStream_t handle) {
    if (!handle || handle == cudaStreamLegacy)
        return &legacy();
    return std::find(streams().begin(), streams().end(), handle) != streams().end() ? handle : nullptr;
}

const std::vector<CUstream_st *> &all_streams() {
    return streams();
}

cudaError_t stream_queue(cudaStream_t handle, const std::string &name, std::function<bool()> advance) {
    hold lock;
    refuse_inside_work(name.c_str());
    CUstream_st *s = stream_of(handle);
    if (!s)
        return give(cudaErrorInvalidResourceHandle);
    if (advance)
        ranges_note_work(name);
    if (s->capture) {
        if (s->capture->invalid)
            return give(cudaErrorStreamCaptureInvalidated);
        capture_add(*s, name, std::move(advance));
        return cudaSuccess;
    }
    if (s == &legacy()) /* which would wait for a blocking stream that captures */
        for (CUstream_st *other : streams())
            if (other->capture && other->blocking)
                return capture_spoil(*other->capture, cudaErrorStreamCaptureImplicit);
    add(*s, name, std::move(advance), predecessors(*s));
    return cudaSuccess;
}

void stream_finish(CUstream_st &s) {
    for (const work_handle &w : predecessors(s))
        if (w)
            work_finish(w);
}

void streams_forget() {
    for (CUstream_st *s : streams()) {
        s->capture = nullptr;
        s->frontier = {};
        s->last = nullptr;
    }
}

} // namespace simcuda

using namespace simcuda;

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    return create(stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    return create(stream, flags, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
    return create(stream, flags, priority);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
    hold lock;
    CUstream_st *s = stream_of(handle);
    if (!s || s == &legacy())
        return give(cudaErrorInvalidResourceHandle);
    if (s->capture)
        return capture_spoil(*s->capture, cudaErrorStreamCaptureUnsupported);
    streams().erase(std::find(streams().begin(), streams().end(), s)); /* its work still runs */
    delete s;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    hold lock;
    refuse_inside_work("cudaStreamSynchronize");
    CUstream_st *s = stream_of(handle);
    if (!s)
        return give(cudaErrorInvalidResourceHandle);
    if (const cudaError_t error = refuse_capturing(s))
        return error;
    if (simcuda_omits(OMIT_STREAM_SYNCHRONIZE))
        leave_out_wait(*s);
    else
        stream_finish(*s);
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
    hold lock;
    refuse_inside_work("cudaStreamQuery");
    CUstream_st *s = stream_of(handle);
    if (!s)
        return give(cudaErrorInvalidResourceHandle);
    if (const cudaError_t error = refuse_capturing(s))
        return error;
    return work_is_done(s->last) ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize(void) {
    hold lock;
    refuse_inside_work("cudaDeviceSynchronize");
    for (CUstream_st *s : streams())
        if (s->capture)
            return capture_spoil(*s->capture, cudaErrorStreamCaptureUnsupported);
    if (!simcuda_omits(OMIT_DEVICE_SYNCHRONIZE)) {
        work_finish_all();
        return cudaSuccess;
    }
    for (const CUstream_st *s : streams())
        leave_out_wait(*s);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
    hold lock;
    refuse_inside_work("cudaStreamWaitEvent");
    CUstream_st *s = stream_of(handle);
    if (!s || !is_event(event))
        return give(cudaErrorInvalidResourceHandle);
    if (event->capture) { /* recorded in a capture, which must still be under way */
        capture *c = event->capture;
        const bool live = std::any_of(streams().begin(), streams().end(), [=](const CUstream_st *other) {
            return other->capture == c && c->number == event->capture_number;
        });
        if (!live)
            return give(cudaErrorCapturedEvent);
        if (s->capture && s->capture != c)
            return capture_spoil(*s->capture, cudaErrorStreamCaptureMerge);
        if (s == &legacy())
            return capture_spoil(*c, cudaErrorStreamCaptureImplicit);
        if (!simcuda_omits(OMIT_STREAM_WAIT_EVENT))
            capture_join(*c, *s, event->nodes);
        else if (s->capture)
            s->frontier.leave_out(event->nodes);
        return cudaSuccess;
    }
    if (s->capture) /* would make the graph wait for work outside of it */
        return event->mark ? capture_spoil(*s->capture, cudaErrorStreamCaptureIsolation) : cudaSuccess;
    if (!event->mark)
        return cudaSuccess;
    if (simcuda_omits(OMIT_STREAM_WAIT_EVENT)) {
        leave_out_wait(*s, *event);
        return cudaSuccess;
    }
    std::vector<work_handle> after = predecessors(*s);
    after.push_back(event->mark);
    add(*s, "wait for an event", nullptr, after);
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *state) {
    if (!function)
        return give(cudaErrorInvalidValue);
    return stream_queue(stream, "host function", [=] {
        function(state);
        return true;
    });
}

cudaError_t cudaEventCreate(cudaEvent_t *event) {
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    hold lock;
    if (!event)
        return give(cudaErrorInvalidValue);
    *event = new CUevent_st{!(flags & cudaEventDisableTiming), nullptr, nullptr, 0, {}};
    events().push_back(*event);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    hold lock;
    if (!is_event(event))
        return give(cudaErrorInvalidResourceHandle);
    events().erase(std::find(events().begin(), events().end(), event));
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
    hold lock;
    refuse_inside_work("cudaEventRecord");
    CUstream_st *s = stream_of(handle);
    if (!s || !is_event(event))
        return give(cudaErrorInvalidResourceHandle);
    if (s->capture) {
        if (s->capture->invalid)
            return give(cudaErrorStreamCaptureInvalidated);
        event->capture = s->capture;
        event->capture_number = s->capture->number;
        event->nodes = s->frontier;
        event->mark = nullptr;
        return cudaSuccess;
    }
    if (const cudaError_t error = stream_queue(handle, "event", nullptr))
        return error;
    event->capture = nullptr;
    event->mark = s->last;
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    hold lock;
    refuse_inside_work("cudaEventSynchronize");
    if (!is_event(event))
        return give(cudaErrorInvalidResourceHandle);
    if (event->capture)
        return give(cudaErrorCapturedEvent);
    if (simcuda_omits(OMIT_EVENT_SYNCHRONIZE))
        work_leave_out(event->mark);
    else
        work_finish(event->mark);
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    hold lock;
    refuse_inside_work("cudaEventQuery");
    if (!is_event(event))
        return give(cudaErrorInvalidResourceHandle);
    if (event->capture)
        return give(cudaErrorCapturedEvent);
    if (const cudaError_t error = capture_forbids_unsafe_call())
        return error;
    if (!simcuda_omits_next(OMIT_EVENT_QUERY) && !work_is_done(event->mark))
        return cudaErrorNotReady;
    if (simcuda_omits(OMIT_EVENT_QUERY))
        work_leave_out(event->mark);
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
    hold lock;
    if (!milliseconds)
        return give(cudaErrorInvalidValue);
    if (!is_event(start) || !is_event(end) || !start->timed || !end->timed || !start->mark || !end->mark)
        return give(cudaErrorInvalidResourceHandle);
    if (!work_is_done(start->mark) || !work_is_done(end->mark))
        return cudaErrorNotReady;
    *milliseconds = (float)((end->mark->when - start->mark->when) * 1e3);
    return cudaSuccess;
}

cudaStream_t simcuda_another_stream(cudaStream_t stream) {
    hold lock;
    const auto own = std::find(streams().begin(), streams().end(), stream_of(stream));
    auto next = own;
    do
        next = next + 1 == streams().end() ? streams().begin() : next + 1;
    while ((*next)->priority != (*own)->priority);
    return *next;
}

void simcuda_queue(cudaStream_t stream, simcuda_work w) {
    const std::shared_ptr<void> owner(w.state, [destroy = w.destroy](void *state) {
        if (destroy)
            destroy(state);
    });
    const cudaError_t error =
        stream_queue(stream, w.name, [advance = w.advance, owner] { return advance(owner.get()); });
    if (error)
        report(format("%s was queued on a stream that takes no work: %s", w.name, cudaGetErrorString(error)));
}
