/* Small programs that the simulator must judge: each misuse must be reported, whatever the seed, and what is correct
 * must run silently and give the right values. Kernels and launches are in cases_*.cu, the test in
 * tests/test_simcuda.c.
 */
#ifndef SIMCUDA_CASES_H
#define SIMCUDA_CASES_H

#include "simcuda.h"

typedef struct simcuda_case {
    const char *name;
    bool (*run)(void); /* queues, waits, and tells whether the values are right (misuses: not asked) */
    const char *says;  /* a misuse: what its report must contain */
} simcuda_case;

#ifdef __cplusplus
extern "C" {
#endif

/* Each ends with an entry without a name. */
extern const simcuda_case simcuda_shared_misuses[], simcuda_global_misuses[], simcuda_meeting_misuses[],
    simcuda_stream_misuses[], simcuda_correct_kernels[], simcuda_correct_streams[];

/* Queues an empty kernel on the default stream; lets it have so much dynamic shared memory. */
void simcuda_case_launch(unsigned grid_y, unsigned threads, size_t shared_bytes);
cudaError_t simcuda_case_allow_shared(int bytes);

/* What a kernel did that doubles 512 fp32: 4 at once (0), neighbours by neighbours (1), every eighth (2). */
simcuda_counters simcuda_case_count(int kind);

/* Whether bf16 and fp16 convert as engine/device/half.h does. */
bool simcuda_case_formats(void);

#ifdef __cplusplus
}

#include <memory>
#include <vector>

/* A device array with these values, written; freed at the end. */
template <typename T> struct device_array {
    T *data = nullptr;
    size_t count;
    explicit device_array(size_t n) : count(n) {
        cudaMalloc(&data, n * sizeof(T));
    }
    explicit device_array(const std::vector<T> &values) : device_array(values.size()) {
        cudaMemcpy(data, values.data(), count * sizeof(T), cudaMemcpyHostToDevice);
    }
    device_array(const device_array &) = delete;
    ~device_array() {
        cudaFree(data);
    }
    std::vector<T> values() const {
        std::vector<T> v(count);
        cudaMemcpy(v.data(), data, count * sizeof(T), cudaMemcpyDeviceToHost);
        return v;
    }
};

inline std::vector<float> counted(size_t n) { /* 0 1 2 ... */
    std::vector<float> v(n);
    for (size_t i = 0; i < n; i++)
        v[i] = (float)i;
    return v;
}

struct stream_handle {
    cudaStream_t stream;
    stream_handle() {
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    }
    stream_handle(const stream_handle &) = delete;
    ~stream_handle() {
        cudaStreamDestroy(stream);
    }
};

struct event_handle {
    cudaEvent_t event;
    event_handle() {
        cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    }
    event_handle(const event_handle &) = delete;
    ~event_handle() {
        cudaEventDestroy(event);
    }
};
#endif

#endif
