/* CUDA as a device: memory, streams, events, and the launch of kernels. One GPU per process.
 *
 * Nothing is allocated once work is queued. The streams do not wait for CUDA's default stream, nor it for them, so
 * every copy names its stream. */
#include "engine/device/cuda/device.h"

#include "engine/checked.h"
#include "engine/device/cuda/errors.h"
#include "engine/device/cuda/gpu.h"
#include "engine/device/cuda/matmul.h"

#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct events {
    cudaEvent_t *list;
    int32_t count;
} events;

typedef struct cuda_device {
    device base;
    gpu gpu;
    cudaStream_t streams[STREAM_COUNT];
    events events, stamps;
    cudaEvent_t fork, joins[STREAM_COUNT]; /* that bring the other streams into a graph and back out of it */
    cudaGraphExec_t *graphs;
    int32_t graph_count;
    cuda_matmul *matmul; /* NULL: the device is only planned for */
    void **copies;       /* of arrays that attributes point to */
    int32_t copy_count;
    error failure; /* the first since opening */
} cuda_device;

static cuda_device *cuda_of(device *d) {
    return (cuda_device *)d;
}

static const cuda_device *cuda_seen(const device *d) {
    return (const cuda_device *)d;
}

cudaStream_t cuda_stream(const device *d, int stream) {
    check(stream >= 0 && stream < STREAM_COUNT, "stream %d", stream);
    return cuda_seen(d)->streams[stream];
}

bool cuda_keep_failure(device *d, const error *e) {
    cuda_device *c = cuda_of(d);
    if (c->failure.code == 0)
        c->failure = *e;
    return c->failure.code == 0;
}

/* ---- opening ---- */

/* Others wait for what collectives bring: they go first. */
static bool goes_first(int stream) {
    return stream == STREAM_GATHER || stream == STREAM_REDUCE;
}

static bool create_streams(cuda_device *c, error *e) {
    int last = 0, first = 0;
    if (!cuda_good(cudaDeviceGetStreamPriorityRange(&last, &first), "cudaDeviceGetStreamPriorityRange", e))
        return false;
    for (int s = 0; s < STREAM_COUNT; s++)
        if (!cuda_good(
                cudaStreamCreateWithPriority(&c->streams[s], cudaStreamNonBlocking, goes_first(s) ? first : last),
                "cudaStreamCreateWithPriority", e))
            return false;
    return true;
}

static void destroy_events(events *of) {
    for (int32_t i = 0; i < of->count; i++)
        cudaEventDestroy(of->list[i]);
    free(of->list);
}

static void cuda_close(device *d) {
    cuda_device *c = cuda_of(d);
    for (int32_t i = 0; i < c->graph_count; i++)
        cudaGraphExecDestroy(c->graphs[i]);
    free(c->graphs);
    if (c->fork != NULL)
        cudaEventDestroy(c->fork);
    for (int s = 0; s < STREAM_COUNT; s++)
        if (c->joins[s] != NULL)
            cudaEventDestroy(c->joins[s]);
    destroy_events(&c->events);
    destroy_events(&c->stamps);
    for (int32_t i = 0; i < c->copy_count; i++)
        cudaFree(c->copies[i]);
    free(c->copies);
    for (int s = 0; s < STREAM_COUNT; s++)
        if (c->streams[s] != NULL)
            cudaStreamDestroy(c->streams[s]);
    if (c->matmul != NULL)
        cuda_matmul_close(c->matmul);
    free(c);
}

static bool cuda_open(const device_settings *settings, device **opened, error *e) {
    cuda_device *c = memory_allocate(1, sizeof *c);
    c->base.functions = &device_cuda;
    if (settings->planning)
        snprintf(c->gpu.description, sizeof c->gpu.description, "CUDA");
    else if (!gpu_choose(settings->number, &c->gpu, e) || !create_streams(c, e) || !cuda_matmul_open(&c->matmul, e)) {
        cuda_close(&c->base);
        return false;
    }
    *opened = &c->base;
    return true;
}

static const char *cuda_describe(const device *d) {
    return cuda_seen(d)->gpu.description;
}

static const char *cuda_identity(const device *d) {
    return cuda_seen(d)->gpu.identity;
}

static const char *cuda_bus_address(const device *d) {
    return cuda_seen(d)->gpu.bus_address;
}

static device_peak cuda_peak(const device *d, dtype type, bool tf32) {
    return peak_of(&cuda_seen(d)->gpu.processors, type, tf32);
}

/* ---- memory ---- */

static device_capacity cuda_capacity(const device *d) {
    size_t available = 0, total = 0;
    if (cuda_seen(d)->matmul == NULL)
        return (device_capacity){INT64_MAX, INT64_MAX};
    if (cudaMemGetInfo(&available, &total) != cudaSuccess) /* the device has failed, as the next synchronize tells */
        return (device_capacity){INT64_MAX, INT64_MAX};
    return (device_capacity){.total = (int64_t)total, .available = (int64_t)available};
}

static pool *cuda_host_threads(const device *d) {
    (void)d;
    return NULL;
}

/* Zeroed, because sums and collectives run over the padding between tensors too: what comes of it is never used, but
 * tools that look for reads of memory never written would find it. The default stream does that, for which ours do not
 * wait. */
static bool cuda_allocate(device *d, size_t bytes, device_memory *memory, error *e) {
    (void)d;
    char doing[64];
    snprintf(doing, sizeof doing, "cudaMalloc of %.1f MB for the arena", (double)bytes / 1e6);
    *memory = (device_memory){.bytes = bytes, .handle = -1};
    return cuda_good(cudaMalloc(&memory->base, bytes > 0 ? bytes : 1), doing, e) &&
           cuda_good(cudaMemset(memory->base, 0, bytes), "cudaMemset of the arena", e) &&
           cuda_good(cudaDeviceSynchronize(), "cudaMemset of the arena", e);
}

static void cuda_release(device *d, device_memory *memory) {
    (void)d;
    cudaFree(memory->base);
    *memory = (device_memory){.handle = -1};
}

static bool cuda_allocate_host(device *d, size_t bytes, void **memory, error *e) {
    (void)d;
    const cudaError_t found = cudaHostAlloc(memory, bytes, cudaHostAllocDefault);
    if (found == cudaErrorMemoryAllocation)
        return error_set_own(e, EXIT_LAUNCH, "cudaHostAlloc: this machine has no %.1f MB of memory to pin",
                             (double)bytes / 1e6);
    if (!cuda_good(found, "cudaHostAlloc", e))
        return false;
    memset(*memory, 0, bytes);
    return true;
}

static void cuda_release_host(device *d, void *memory) {
    (void)d;
    cudaFreeHost(memory);
}

/* ---- work ---- */

static size_t cuda_workspace(const device *d, const launch *l) {
    (void)d;
    if (l->kind == OPERATION_MATMUL)
        return cuda_matmul_workspace(l);
    const cuda_kernel *kernel = cuda_kernels[l->kind];
    return kernel == NULL || kernel->workspace == NULL ? 0 : kernel->workspace(l);
}

static bool cuda_fuses(device *d, const launch *l) {
    return cuda_matmul_fuses(cuda_of(d)->matmul, l);
}

/* A copy of an array in the GPU's memory, NULL of an empty one. */
static bool copy_to_gpu(cuda_device *c, const void *array, size_t bytes, const void **copy, error *e) {
    void *made = NULL;
    *copy = NULL;
    if (bytes == 0)
        return true;
    if (!cuda_good(cudaMalloc(&made, bytes), "cudaMalloc", e))
        return false;
    c->copies = memory_grow(c->copies, (size_t)c->copy_count + 1, sizeof *c->copies);
    c->copies[c->copy_count++] = made;
    *copy = made;
    return cuda_good(cudaMemcpy(made, array, bytes, cudaMemcpyHostToDevice), "cudaMemcpy", e);
}

static bool cuda_prepare(device *d, launch *l, error *e) {
    attributes *a = &l->attributes;
    const void *copy;
    if (a->segments != NULL) {
        if (!copy_to_gpu(cuda_of(d), a->segments, (size_t)a->segment_count * sizeof *a->segments, &copy, e))
            return false;
        a->segments = copy;
    }
    if (a->columns != NULL) {
        if (!copy_to_gpu(cuda_of(d), a->columns, (size_t)a->column_count * sizeof *a->columns, &copy, e))
            return false;
        a->columns = copy;
    }
    return true;
}

static size_t operand_bytes(const operand *o) {
    return (size_t)must_multiply(operand_count(o), dtype_bytes(o->type));
}

static cudaError_t copy_in(const launch *l, cudaStream_t on) {
    const operand *out = &l->out[0];
    return cudaMemcpyAsync(out->data, l->workspace, operand_bytes(out), cudaMemcpyHostToDevice, on);
}

static cudaError_t copy_out(const launch *l, cudaStream_t on) {
    const operand *in = &l->in[0];
    return cudaMemcpyAsync(l->workspace, in->data, operand_bytes(in), cudaMemcpyDeviceToHost, on);
}

static void queue_kernel(const launch *l, cudaStream_t on, const char *doing, error *e) {
    const cuda_kernel *kernel = cuda_kernels[l->kind];
    check(kernel != NULL, "the CUDA device has no kernel for %s", operation_signature_of(l->kind)->name);
    kernel->queue(l, on);
    cuda_launched(doing, e);
}

/* After a failure nothing is queued any more: it would only fail likewise. */
static void cuda_launch(device *d, int stream, const launch *l) {
    cuda_device *c = cuda_of(d);
    const cudaStream_t on = cuda_stream(d, stream);
    const char *doing = operation_signature_of(l->kind)->name;
    if (c->failure.code != 0)
        return;
    if (l->kind == OPERATION_COPY_IN)
        cuda_good(copy_in(l, on), doing, &c->failure);
    else if (l->kind == OPERATION_COPY_OUT)
        cuda_good(copy_out(l, on), doing, &c->failure);
    else if (l->kind == OPERATION_MATMUL)
        cuda_matmul_queue(c->matmul, l, on, &c->failure);
    else
        queue_kernel(l, on, doing, &c->failure);
}

/* On the compute stream, behind what was queued there. */
static bool copy_and_wait(cuda_device *c, void *to, const void *from, size_t bytes, enum cudaMemcpyKind direction) {
    const cudaStream_t on = c->streams[STREAM_COMPUTE];
    return cuda_good(cudaMemcpyAsync(to, from, bytes, direction, on), "cudaMemcpyAsync", &c->failure) &&
           cuda_good(cudaStreamSynchronize(on), "cudaStreamSynchronize", &c->failure);
}

static void cuda_write(device *d, void *destination, const void *host, size_t bytes) {
    copy_and_wait(cuda_of(d), destination, host, bytes, cudaMemcpyHostToDevice);
}

static void cuda_read(device *d, void *host, const void *source, size_t bytes) {
    cuda_device *c = cuda_of(d);
    /* Nobody may save or show what was never read, and a rank without its GPU has nothing to go on with. */
    const bool good = copy_and_wait(c, host, source, bytes, cudaMemcpyDeviceToHost);
    check(good, "%s", c->failure.message);
}

/* ---- events ---- */

static bool make_events(events *of, int32_t count, unsigned flags, error *e) {
    if (count <= of->count)
        return true;
    of->list = memory_grow(of->list, (size_t)count, sizeof *of->list);
    for (; of->count < count; of->count++)
        if (!cuda_good(cudaEventCreateWithFlags(&of->list[of->count], flags), "cudaEventCreateWithFlags", e))
            return false;
    return true;
}

static bool cuda_reserve(device *d, int32_t events, int32_t stamps, error *e) {
    cuda_device *c = cuda_of(d);
    return make_events(&c->events, events, cudaEventDisableTiming, e) &&
           make_events(&c->stamps, stamps, cudaEventDefault, e);
}

static cudaEvent_t event_of(const events *of, int32_t number) {
    check(number >= 0 && number < of->count, "event %d of %d", number, of->count);
    return of->list[number];
}

static void cuda_record(device *d, int stream, int32_t event) {
    cuda_device *c = cuda_of(d);
    if (c->failure.code == 0)
        cuda_good(cudaEventRecord(event_of(&c->events, event), cuda_stream(d, stream)), "cudaEventRecord", &c->failure);
}

static void cuda_wait(device *d, int stream, int32_t event) {
    cuda_device *c = cuda_of(d);
    if (c->failure.code == 0)
        cuda_good(cudaStreamWaitEvent(cuda_stream(d, stream), event_of(&c->events, event), 0), "cudaStreamWaitEvent",
                  &c->failure);
}

static bool cuda_recorded(device *d, int32_t event) {
    cuda_device *c = cuda_of(d);
    const cudaError_t state = cudaEventQuery(event_of(&c->events, event));
    if (state == cudaErrorNotReady)
        return false;
    cuda_good(state, "cudaEventQuery", &c->failure); /* after a failure nothing more comes: synchronize tells */
    return true;
}

static void cuda_stamp(device *d, int stream, int32_t stamp) {
    cuda_device *c = cuda_of(d);
    if (c->failure.code == 0)
        cuda_good(cudaEventRecord(event_of(&c->stamps, stamp), cuda_stream(d, stream)), "cudaEventRecord", &c->failure);
}

static double cuda_elapsed(device *d, int32_t from, int32_t to) {
    cuda_device *c = cuda_of(d);
    float milliseconds = 0;
    cuda_good(cudaEventElapsedTime(&milliseconds, event_of(&c->stamps, from), event_of(&c->stamps, to)),
              "cudaEventElapsedTime", &c->failure);
    return 1e-3 * (double)milliseconds;
}

/* ---- graphs ---- */

static bool make_graph_events(cuda_device *c, error *e) {
    if (c->fork != NULL)
        return true;
    for (int s = 0; s < STREAM_COUNT; s++)
        if (!cuda_good(cudaEventCreateWithFlags(&c->joins[s], cudaEventDisableTiming), "cudaEventCreateWithFlags", e))
            return false;
    return cuda_good(cudaEventCreateWithFlags(&c->fork, cudaEventDisableTiming), "cudaEventCreateWithFlags", e);
}

static bool cuda_begin_graph(device *d, error *e) {
    cuda_device *c = cuda_of(d);
    const cudaStream_t main = c->streams[STREAM_COMPUTE];
    if (!make_graph_events(c, e) ||
        !cuda_good(cudaStreamBeginCapture(main, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture", e) ||
        !cuda_good(cudaEventRecord(c->fork, main), "cudaEventRecord", e))
        return false;
    for (int s = 0; s < STREAM_COUNT; s++)
        if (c->streams[s] != main &&
            !cuda_good(cudaStreamWaitEvent(c->streams[s], c->fork, 0), "cudaStreamWaitEvent", e))
            return false;
    return true;
}

static bool join_streams(cuda_device *c, error *e) {
    const cudaStream_t main = c->streams[STREAM_COMPUTE];
    for (int s = 0; s < STREAM_COUNT; s++)
        if (c->streams[s] != main && (!cuda_good(cudaEventRecord(c->joins[s], c->streams[s]), "cudaEventRecord", e) ||
                                      !cuda_good(cudaStreamWaitEvent(main, c->joins[s], 0), "cudaStreamWaitEvent", e)))
            return false;
    return true;
}

static bool cuda_end_graph(device *d, int32_t *graph, error *e) {
    cuda_device *c = cuda_of(d);
    cudaGraph_t kept = NULL;
    cudaGraphExec_t ready = NULL;
    if (c->failure.code != 0) {
        *e = c->failure;
        return false;
    }
    if (!join_streams(c, e) ||
        !cuda_good(cudaStreamEndCapture(c->streams[STREAM_COMPUTE], &kept), "cudaStreamEndCapture", e))
        return false;
    const bool good = cuda_good(cudaGraphInstantiate(&ready, kept, 0), "cudaGraphInstantiate", e);
    cudaGraphDestroy(kept);
    if (!good)
        return false;
    c->graphs = memory_grow(c->graphs, (size_t)c->graph_count + 1, sizeof *c->graphs);
    *graph = c->graph_count;
    c->graphs[c->graph_count++] = ready;
    return true;
}

static void cuda_replay(device *d, int32_t graph) {
    cuda_device *c = cuda_of(d);
    check(graph >= 0 && graph < c->graph_count, "graph %d of %d", graph, c->graph_count);
    if (c->failure.code == 0)
        cuda_good(cudaGraphLaunch(c->graphs[graph], c->streams[STREAM_COMPUTE]), "cudaGraphLaunch", &c->failure);
}

/* ---- ranges ---- */

static void cuda_begin_range(device *d, const char *name) {
    (void)d;
    nvtxRangePushA(name);
}

static void cuda_end_range(device *d) {
    (void)d;
    nvtxRangePop();
}

static bool cuda_synchronize(device *d, error *e) {
    cuda_device *c = cuda_of(d);
    cuda_good(cudaDeviceSynchronize(), "operations on the GPU", &c->failure);
    if (c->failure.code != 0)
        *e = c->failure;
    return c->failure.code == 0;
}

const device_functions device_cuda = {
    .name = "cuda",
    .queues = true,
    .open = cuda_open,
    .close = cuda_close,
    .describe = cuda_describe,
    .identity = cuda_identity,
    .bus_address = cuda_bus_address,
    .peak = cuda_peak,
    .capacity = cuda_capacity,
    .host_threads = cuda_host_threads,
    .allocate = cuda_allocate,
    .release = cuda_release,
    .allocate_host = cuda_allocate_host,
    .release_host = cuda_release_host,
    .workspace = cuda_workspace,
    .fuses = cuda_fuses,
    .prepare = cuda_prepare,
    .launch = cuda_launch,
    .write = cuda_write,
    .read = cuda_read,
    .reserve = cuda_reserve,
    .record = cuda_record,
    .wait = cuda_wait,
    .recorded = cuda_recorded,
    .begin_graph = cuda_begin_graph,
    .end_graph = cuda_end_graph,
    .replay = cuda_replay,
    .stamp = cuda_stamp,
    .elapsed = cuda_elapsed,
    .begin_range = cuda_begin_range,
    .end_range = cuda_end_range,
    .synchronize = cuda_synchronize,
};
