/* The counters of collectives, executed by tests/simcuda: once for each time that a stream, or a graph, comes by. */
#include "engine/device/cuda/kernels.h"
#include "engine/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void must(cudaError_t code) {
    check(code == cudaSuccess, "simulated device: %s", cudaGetErrorString(code));
}

static void counts_each_time(void **state) {
    (void)state;
    int64_t *counters = NULL;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t replayed;
    must(cudaHostAlloc((void **)&counters, 2 * sizeof *counters, cudaHostAllocMapped));
    counters[0] = 41;
    counters[1] = 0;
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cuda_count(&counters[0], stream);
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    cuda_count(&counters[0], stream);
    cuda_count(&counters[1], stream);
    must(cudaStreamEndCapture(stream, &graph));
    must(cudaGraphInstantiate(&replayed, graph, 0));
    for (int i = 0; i < 3; i++)
        must(cudaGraphLaunch(replayed, stream));
    must(cudaStreamSynchronize(stream));
    must(cudaGetLastError());
    assert_int_equal(counters[0], 41 + 1 + 3);
    assert_int_equal(counters[1], 3);
    must(cudaGraphExecDestroy(replayed));
    must(cudaGraphDestroy(graph));
    must(cudaStreamDestroy(stream));
    must(cudaFreeHost(counters));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_each_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
