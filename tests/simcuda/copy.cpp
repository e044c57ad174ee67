/* Copies and fills. A copy from or to pinned memory touches it when it runs; from pageable memory the bytes are taken
 * at the call, as the documentation of cudaMemcpyAsync allows, and to pageable memory the call waits. */
#include "access.h"
#include "error.h"
#include "intent.h"
#include "memory.h"
#include "report.h"
#include "stream.h"

#include <cstring>

namespace simcuda {

namespace {

void copy_now(void *destination, const void *source, size_t bytes, const char *name) {
    const bool to_device = in_device((uintptr_t)destination), from_device = in_device((uintptr_t)source);
    if (from_device && to_device && (uintptr_t)destination - (uintptr_t)source + bytes < 2 * bytes)
        report(format("work %s: a copy of %zu bytes between ranges that overlap", name, bytes));
    if (from_device)
        work_access(source, bytes, ACCESS_READ, to_device, name);
    if (to_device)
        work_access(destination, bytes, ACCESS_WRITE, false, name);
    if (!from_device && is_pinned(source, bytes))
        intent_touch(*running_work, (uintptr_t)source, bytes, false);
    if (!to_device && is_pinned(destination, bytes))
        intent_touch(*running_work, (uintptr_t)destination, bytes, true);
    memcpy(destination, source, bytes);
    if (from_device && to_device) /* unwritten bytes stay so */
        memcpy(memory.state + ((uintptr_t)destination - memory.base), memory.state + ((uintptr_t)source - memory.base),
               bytes);
}

bool direction_fits(cudaMemcpyKind kind, bool from_device, bool to_device) {
    switch (kind) {
    case cudaMemcpyHostToHost:
        return !from_device && !to_device;
    case cudaMemcpyHostToDevice:
        return !from_device && to_device;
    case cudaMemcpyDeviceToHost:
        return from_device && !to_device;
    case cudaMemcpyDeviceToDevice:
        return from_device && to_device;
    default:
        return kind == cudaMemcpyDefault;
    }
}

const char *copy_name(bool from_device, bool to_device) {
    return from_device ? to_device ? "copy device to device" : "copy device to host"
           : to_device ? "copy host to device"
                       : "copy host to host";
}

} // namespace

} // namespace simcuda

using namespace simcuda;

cudaError_t cudaMemcpyAsync(void *destination, const void *source, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    hold lock;
    refuse_inside_work("cudaMemcpyAsync");
    if (bytes == 0)
        return cudaSuccess;
    const bool to_device = in_device((uintptr_t)destination), from_device = in_device((uintptr_t)source);
    CUstream_st *s = stream_of(stream);
    if (!s)
        return give(cudaErrorInvalidResourceHandle);
    if (!destination || !source || !direction_fits(kind, from_device, to_device))
        return give(cudaErrorInvalidValue);
    const bool pageable_source = !from_device && !is_pinned(source, bytes),
               pageable_destination = !to_device && !is_pinned(destination, bytes);
    if (s->capture && (pageable_source || pageable_destination))
        return capture_spoil(*s->capture, cudaErrorStreamCaptureUnsupported);
    const char *name = copy_name(from_device, to_device);
    std::shared_ptr<std::vector<char>> staged;
    if (pageable_source)
        staged = std::make_shared<std::vector<char>>((const char *)source, (const char *)source + bytes);
    const cudaError_t error = stream_queue(stream, name, [=] {
        copy_now(destination, staged ? staged->data() : source, bytes, name);
        return true;
    });
    if (!error && pageable_destination)
        stream_finish(*s);
    return error;
}

cudaError_t cudaMemcpy(void *destination, const void *source, size_t bytes, cudaMemcpyKind kind) {
    hold lock;
    if (const cudaError_t error = capture_forbids_unsafe_call())
        return error;
    const cudaError_t error = cudaMemcpyAsync(destination, source, bytes, kind, nullptr);
    if (!error)
        stream_finish(*stream_of(nullptr));
    return error;
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream) {
    hold lock;
    if (bytes == 0)
        return cudaSuccess;
    if (!in_device((uintptr_t)p))
        return give(cudaErrorInvalidValue);
    return stream_queue(stream, "fill", [=] {
        work_access(p, bytes, ACCESS_WRITE, false, "fill");
        memset(p, value, bytes);
        return true;
    });
}

cudaError_t cudaMemset(void *p, int value, size_t bytes) {
    return cudaMemsetAsync(p, value, bytes, nullptr);
}
