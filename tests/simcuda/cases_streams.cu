/* Misuses and correct uses of streams, events, copies and graphs. */
#include "cases.h"

#include "cuda_instructions.h"

#include <cstring>

enum : size_t { COUNT = 1000 };

__global__ void scale(float *out, const float *in, float factor) {
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < COUNT)
        out[i] = in[i] * factor;
}
static void queue_scale(cudaStream_t s, float *out, const float *in, float factor) {
    LAUNCH(scale, 8, 128, 0, s, out, in, factor);
}

static bool finish() {
    return cudaDeviceSynchronize() == cudaSuccess;
}

static void order(cudaStream_t earlier, cudaStream_t later) {
    event_handle e;
    cudaEventRecord(e.event, earlier);
    cudaStreamWaitEvent(later, e.event);
}

static bool all_are(const std::vector<float> &v, float factor) {
    for (size_t i = 0; i < v.size(); i++)
        if (v[i] != (float)i * factor)
            return false;
    return true;
}

/* Pinned memory of COUNT floats, kept for the process. */
static float *pinned(int which) {
    static float *memory[2];
    if (!memory[which])
        cudaMallocHost(&memory[which], COUNT * sizeof(float));
    return memory[which];
}

const simcuda_case simcuda_stream_misuses[] = {
    {"written on one stream, read on another, no wait",
     [] {
         stream_handle a, b;
         device_array<float> x(counted(COUNT)), y(counted(COUNT)), z(COUNT);
         queue_scale(a.stream, y.data, x.data, 2);
         queue_scale(b.stream, z.data, y.data, 2);
         return finish();
     },
     "no event, stream or synchronisation orders the two"},
    {"read on one stream, written on another, no wait",
     [] {
         stream_handle a, b;
         device_array<float> x(counted(COUNT)), y(counted(COUNT)), z(COUNT);
         queue_scale(a.stream, z.data, y.data, 2);
         queue_scale(b.stream, y.data, x.data, 2);
         return finish();
     },
     "orders the two"},
    {"written on two streams, no wait",
     [] {
         stream_handle a, b;
         device_array<float> x(counted(COUNT)), y(COUNT);
         queue_scale(a.stream, y.data, x.data, 2);
         queue_scale(b.stream, y.data, x.data, 3);
         return finish();
     },
     "orders the two"},
    {"event recorded too early",
     [] {
         stream_handle a, b;
         device_array<float> x(counted(COUNT)), y(counted(COUNT)), z(COUNT);
         order(a.stream, b.stream);
         queue_scale(a.stream, y.data, x.data, 2);
         queue_scale(b.stream, z.data, y.data, 2);
         return finish();
     },
     "orders the two"},
    {"event waited for too late",
     [] {
         stream_handle a, b;
         device_array<float> x(counted(COUNT)), y(counted(COUNT)), z(COUNT);
         queue_scale(a.stream, y.data, x.data, 2);
         queue_scale(b.stream, z.data, y.data, 2);
         order(a.stream, b.stream);
         return finish();
     },
     "orders the two"},
    {"event waited for before it is recorded",
     [] {
         stream_handle a, b;
         event_handle e;
         device_array<float> x(counted(COUNT)), y(counted(COUNT)), z(COUNT);
         cudaStreamWaitEvent(b.stream, e.event);
         queue_scale(a.stream, y.data, x.data, 2);
         cudaEventRecord(e.event, a.stream);
         queue_scale(b.stream, z.data, y.data, 2);
         return finish();
     },
     "orders the two"},
    {"two readers, the writer waits for one",
     [] {
         stream_handle a, b, c;
         device_array<float> x(counted(COUNT)), y(counted(COUNT)), z(COUNT), w(COUNT);
         queue_scale(a.stream, z.data, y.data, 2);
         queue_scale(b.stream, w.data, y.data, 2);
         order(simcuda_random() % 2 ? a.stream : b.stream, c.stream);
         queue_scale(c.stream, y.data, x.data, 2);
         return finish();
     },
     "orders the two"},
    {"copy to the host beside the kernel that writes",
     [] {
         stream_handle a, b;
         device_array<float> x(counted(COUNT)), y(counted(COUNT));
         queue_scale(a.stream, y.data, x.data, 2);
         cudaMemcpyAsync(pinned(0), y.data, COUNT * sizeof(float), cudaMemcpyDeviceToHost, b.stream);
         return finish();
     },
     "copy device to host"},
    {"non-blocking stream beside the default stream",
     [] {
         stream_handle a;
         device_array<float> x(counted(COUNT)), y(counted(COUNT));
         cudaMemsetAsync(y.data, 0, COUNT * sizeof(float), nullptr);
         queue_scale(a.stream, y.data, x.data, 2);
         return finish();
     },
     "orders the two"},
    {"other stream synchronised",
     [] {
         stream_handle a, b;
         device_array<float> x(counted(COUNT)), y(counted(COUNT)), z(COUNT);
         queue_scale(a.stream, y.data, x.data, 2);
         cudaStreamSynchronize(b.stream);
         queue_scale(b.stream, z.data, y.data, 2);
         return finish();
     },
     "orders the two"},
    {"branches of a graph race",
     [] {
         stream_handle a, b;
         device_array<float> x(counted(COUNT)), y(counted(COUNT)), z(COUNT);
         cudaGraph_t graph;
         cudaGraphExec_t executable;
         cudaStreamBeginCapture(a.stream, cudaStreamCaptureModeGlobal);
         order(a.stream, b.stream);
         queue_scale(a.stream, y.data, x.data, 2);
         queue_scale(b.stream, z.data, y.data, 2);
         order(b.stream, a.stream);
         cudaStreamEndCapture(a.stream, &graph);
         cudaGraphInstantiate(&executable, graph);
         cudaGraphLaunch(executable, a.stream);
         cudaGraphDestroy(graph);
         cudaGraphExecDestroy(executable);
         return finish();
     },
     "orders the two"},
    {"graph beside other work",
     [] {
         stream_handle a, b;
         device_array<float> x(counted(COUNT)), y(counted(COUNT)), z(COUNT);
         cudaGraph_t graph;
         cudaGraphExec_t executable;
         cudaStreamBeginCapture(a.stream, cudaStreamCaptureModeGlobal);
         queue_scale(a.stream, y.data, x.data, 2);
         cudaStreamEndCapture(a.stream, &graph);
         cudaGraphInstantiate(&executable, graph);
         cudaGraphLaunch(executable, a.stream);
         cudaGraphDestroy(graph);
         cudaGraphExecDestroy(executable);
         queue_scale(b.stream, z.data, y.data, 2);
         return finish();
     },
     "orders the two"},
    {"unwritten bytes copied to the host",
     [] {
         device_array<float> x(COUNT);
         cudaMemset(x.data, 0, (COUNT - 1) * sizeof(float));
         x.values();
         return true;
     },
     "never written: byte 3996"},
    {"unwritten bytes copied on the device stay unwritten",
     [] {
         device_array<float> x(COUNT), y(counted(COUNT));
         cudaMemcpy(y.data, x.data, COUNT * sizeof(float), cudaMemcpyDeviceToDevice);
         queue_scale(nullptr, y.data, y.data, 2);
         return finish();
     },
     "never written"},
    {"copy behind the end of an allocation",
     [] {
         device_array<float> x(COUNT), y(counted(COUNT + 1));
         cudaMemcpy(x.data, y.data, (COUNT + 1) * sizeof(float), cudaMemcpyDeviceToDevice);
         return true;
     },
     "behind the end"},
    {"copy between ranges that overlap",
     [] {
         device_array<float> x(counted(COUNT));
         cudaMemcpy(x.data, x.data + 1, 100 * sizeof(float), cudaMemcpyDeviceToDevice);
         return true;
     },
     "overlap"},
    {"host function that calls CUDA",
     [] {
         cudaLaunchHostFunc(
             nullptr, [](void *) { cudaDeviceSynchronize(); }, nullptr);
         return finish();
     },
     "host functions must not call CUDA"},
    {"a library reads unwritten bytes",
     [] {
         static device_array<float> x(COUNT);
         simcuda_queue(nullptr, {"product",
                                 [](void *) {
                                     simcuda_read(x.data, 16, "product");
                                     return true;
                                 },
                                 nullptr, nullptr});
         return finish();
     },
     "work product reads 16 bytes: never written"},
    {nullptr, nullptr, nullptr},
};

struct counted_work {
    int calls;
    int *destroyed;
    const float *source;
};

const simcuda_case simcuda_correct_streams[] = {
    {"streams ordered by an event",
     [] {
         stream_handle a, b;
         device_array<float> x(counted(COUNT)), y(COUNT), z(COUNT);
         queue_scale(a.stream, y.data, x.data, 2);
         order(a.stream, b.stream);
         queue_scale(b.stream, z.data, y.data, 2);
         order(b.stream, a.stream);
         queue_scale(a.stream, x.data, z.data, 2);
         cudaStreamSynchronize(a.stream);
         return all_are(x.values(), 8);
     },
     nullptr},
    {"two readers, the writer waits for both",
     [] {
         stream_handle a, b, c;
         device_array<float> x(counted(COUNT)), y(counted(COUNT)), z(COUNT), w(COUNT);
         queue_scale(a.stream, z.data, y.data, 2);
         queue_scale(b.stream, w.data, y.data, 3);
         order(a.stream, c.stream);
         order(b.stream, c.stream);
         queue_scale(c.stream, y.data, x.data, 4);
         return finish() && all_are(y.values(), 4) && all_are(z.values(), 2) && all_are(w.values(), 3);
     },
     nullptr},
    {"streams ordered by the host",
     [] {
         stream_handle a, b;
         event_handle e;
         device_array<float> x(counted(COUNT)), y(COUNT), z(COUNT);
         queue_scale(a.stream, y.data, x.data, 2);
         cudaEventRecord(e.event, a.stream);
         if (simcuda_random() % 2)
             cudaEventSynchronize(e.event);
         else
             while (cudaEventQuery(e.event) == cudaErrorNotReady)
                 ;
         queue_scale(b.stream, z.data, y.data, 2);
         cudaStreamSynchronize(b.stream);
         return all_are(z.values(), 4);
     },
     nullptr},
    {"blocking streams and the default stream",
     [] {
         cudaStream_t a;
         cudaStreamCreate(&a);
         device_array<float> x(counted(COUNT)), y(COUNT), z(COUNT);
         queue_scale(a, y.data, x.data, 2);
         queue_scale(nullptr, z.data, y.data, 2);
         queue_scale(a, x.data, z.data, 2);
         cudaStreamSynchronize(a);
         cudaStreamDestroy(a);
         return all_are(x.values(), 8);
     },
     nullptr},
    {"copies from and to pinned memory",
     [] {
         stream_handle a;
         device_array<float> x(COUNT);
         const std::vector<float> v = counted(COUNT);
         memcpy(pinned(0), v.data(), COUNT * sizeof(float));
         cudaMemcpyAsync(x.data, pinned(0), COUNT * sizeof(float), cudaMemcpyHostToDevice, a.stream);
         queue_scale(a.stream, x.data, x.data, 2);
         cudaMemcpyAsync(pinned(1), x.data, COUNT * sizeof(float), cudaMemcpyDeviceToHost, a.stream);
         cudaStreamSynchronize(a.stream);
         return all_are(std::vector<float>(pinned(1), pinned(1) + COUNT), 2);
     },
     nullptr},
    {"copy from pageable memory that is then overwritten",
     [] {
         stream_handle a;
         device_array<float> x(COUNT);
         std::vector<float> v = counted(COUNT);
         cudaMemcpyAsync(x.data, v.data(), COUNT * sizeof(float), cudaMemcpyHostToDevice, a.stream);
         v.assign(COUNT, 7);
         cudaStreamSynchronize(a.stream);
         return all_are(x.values(), 1);
     },
     nullptr},
    {"host functions in stream order",
     [] {
         stream_handle a;
         static std::vector<int> seen;
         seen.clear();
         static const int numbers[3] = {0, 1, 2};
         for (const int &number : numbers)
             cudaLaunchHostFunc(
                 a.stream, [](void *n) { seen.push_back(*(int *)n); }, (void *)&number);
         cudaStreamSynchronize(a.stream);
         return seen == std::vector<int>({0, 1, 2});
     },
     nullptr},
    {"graph of two streams, launched three times",
     [] {
         stream_handle a, b;
         device_array<float> x(counted(COUNT)), y(COUNT), z(COUNT);
         cudaGraph_t graph;
         cudaGraphExec_t executable;
         cudaStreamBeginCapture(a.stream, cudaStreamCaptureModeGlobal);
         order(a.stream, b.stream);
         queue_scale(a.stream, y.data, x.data, 2);
         queue_scale(b.stream, z.data, x.data, 3);
         order(b.stream, a.stream);
         queue_scale(a.stream, x.data, y.data, 1);
         const bool captured = cudaStreamEndCapture(a.stream, &graph) == cudaSuccess;
         cudaGraphInstantiate(&executable, graph);
         cudaGraphDestroy(graph);
         for (int i = 0; i < 3; i++)
             cudaGraphLaunch(executable, a.stream);
         cudaGraphExecDestroy(executable);
         cudaStreamSynchronize(a.stream);
         return captured && all_are(x.values(), 8) && all_are(z.values(), 12);
     },
     nullptr},
    {"a library's work in steps, captured and replayed",
     [] {
         stream_handle a;
         device_array<float> x(counted(COUNT));
         int destroyed = 0;
         cudaGraph_t graph;
         cudaGraphExec_t executable;
         counted_work *w = new counted_work{0, &destroyed, x.data};
         cudaStreamBeginCapture(a.stream, cudaStreamCaptureModeGlobal);
         simcuda_queue(a.stream, {"library",
                                  [](void *state) {
                                      counted_work *c = static_cast<counted_work *>(state);
                                      simcuda_read(c->source, COUNT * sizeof(float), "library");
                                      return ++c->calls % 3 == 0;
                                  },
                                  [](void *state) {
                                      counted_work *c = static_cast<counted_work *>(state);
                                      *c->destroyed = c->calls;
                                      delete c;
                                  },
                                  w});
         cudaStreamEndCapture(a.stream, &graph);
         cudaGraphInstantiate(&executable, graph);
         cudaGraphDestroy(graph);
         cudaGraphLaunch(executable, a.stream);
         cudaGraphLaunch(executable, a.stream);
         cudaStreamSynchronize(a.stream);
         cudaGraphExecDestroy(executable);
         return destroyed == 6;
     },
     nullptr},
    {nullptr, nullptr, nullptr},
};
