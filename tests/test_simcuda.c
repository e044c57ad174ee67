/* The simulated GPU: misuses are reported and correct programs are not, for many seeds; formats, limits, captures and
 * counters are as CUDA's. */
#include "simcuda/cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MISUSE_SEEDS = 20, CORRECT_SEEDS = 50 };

typedef struct judged {
    const simcuda_case *what;
    bool right;
} judged;

static void run_case(void *state) {
    judged *j = state;
    j->right = j->what->run();
}

/* In how many of the seeds each misuse was reported in the expected words; all must be, in every one. */
static void check_misuses(const char *title, const simcuda_case *cases) {
    size_t count = 0, caught = 0;
    for (const simcuda_case *c = cases; c->name; c++, count++) {
        int seeds = 0;
        char missed[1024] = "none";
        for (uint64_t seed = 0; seed < MISUSE_SEEDS; seed++) {
            judged j = {c, false};
            simcuda_seed(seed);
            char text[1024] = "none";
            if (simcuda_catch(run_case, &j, text, sizeof text) && strstr(text, c->says))
                seeds++;
            else
                memcpy(missed, text, sizeof missed);
        }
        caught += seeds == MISUSE_SEEDS;
        if (seeds != MISUSE_SEEDS)
            print_message("%s: %s: reported under %d of %d seeds; another report: %s\n", title, c->name, seeds,
                          MISUSE_SEEDS, missed);
    }
    print_message("%s: %zu of %zu misuses are reported under each of %d seeds\n", title, caught, count, MISUSE_SEEDS);
    assert_int_equal(caught, count);
}

static void check_correct(const simcuda_case *cases) {
    for (const simcuda_case *c = cases; c->name; c++)
        for (uint64_t seed = 0; seed < CORRECT_SEEDS; seed++) {
            judged j = {c, false};
            char text[1024];
            simcuda_seed(seed);
            if (simcuda_catch(run_case, &j, text, sizeof text))
                fail_msg("%s, seed %llu: %s", c->name, (unsigned long long)seed, text);
            if (!j.right)
                fail_msg("%s, seed %llu: wrong values", c->name, (unsigned long long)seed);
        }
}

static void shared_memory(void **state) {
    (void)state;
    check_misuses("shared memory", simcuda_shared_misuses);
}

static void global_memory(void **state) {
    (void)state;
    check_misuses("global memory", simcuda_global_misuses);
}

static void meetings(void **state) {
    (void)state;
    check_misuses("threads that do not meet", simcuda_meeting_misuses);
}

static void streams(void **state) {
    (void)state;
    check_misuses("streams and copies", simcuda_stream_misuses);
}

static void correct_kernels(void **state) {
    (void)state;
    check_correct(simcuda_correct_kernels);
}

static void correct_streams(void **state) {
    (void)state;
    check_correct(simcuda_correct_streams);
}

/* Calls that CUDA refuses, and with which error. */

static cudaError_t launch_error(size_t shared, unsigned grid_y, unsigned threads) {
    simcuda_case_launch(grid_y, threads, shared);
    return cudaGetLastError();
}

static void limits(void **state) {
    (void)state;
    simcuda_seed(0);
    assert_int_equal(launch_error(48 * 1024, 65535, 1), cudaSuccess);
    simcuda_seed(0); /* forgets the launch */
    assert_int_equal(launch_error(0, 1, 1025), cudaErrorInvalidConfiguration);
    assert_int_equal(launch_error(0, 1, 0), cudaErrorInvalidConfiguration);
    assert_int_equal(launch_error(0, 65536, 1), cudaErrorInvalidConfiguration);
    assert_int_equal(launch_error(48 * 1024 + 1, 1, 1), cudaErrorInvalidValue);
    assert_int_equal(simcuda_case_allow_shared(163 * 1024 + 1), cudaErrorInvalidValue);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
    assert_int_equal(simcuda_case_allow_shared(163 * 1024), cudaSuccess);
    assert_int_equal(launch_error(163 * 1024, 1, 1), cudaSuccess);
    assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);

    size_t free_bytes, total;
    void *p, *q;
    assert_int_equal(cudaMemGetInfo(&free_bytes, &total), cudaSuccess);
    assert_int_equal(cudaMalloc(&p, free_bytes + 1), cudaErrorMemoryAllocation);
    assert_int_equal(cudaMalloc(&p, free_bytes / 2), cudaSuccess);
    assert_int_equal(cudaMalloc(&q, free_bytes / 2 + 4096), cudaErrorMemoryAllocation);
    assert_int_equal(cudaFree(p), cudaSuccess);
    assert_int_equal(cudaFree(p), cudaErrorInvalidValue);
    cudaGetLastError();
    assert_int_equal(cudaSetDevice(1), cudaErrorInvalidDevice);
    assert_int_equal(cudaMemcpy(&total, &free_bytes, 8, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    cudaGetLastError();
}

/* What a stream that captures must not be asked, and what the capture then ends with. */
static void captures(void **state) {
    (void)state;
    simcuda_seed(0);
    cudaStream_t a, b;
    cudaEvent_t event, outside;
    cudaGraph_t graph;
    float *device, host[4] = {0};
    cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&outside, cudaEventDisableTiming);
    cudaMalloc((void **)&device, sizeof host);
    cudaEventRecord(outside, b);

    for (int call = 0; call < 6; call++) {
        assert_int_equal(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal), cudaSuccess);
        cudaError_t error = cudaSuccess;
        switch (call) {
        case 0:
            error = cudaStreamSynchronize(a);
            break;
        case 1:
            error = cudaStreamQuery(a);
            break;
        case 2:
            error = cudaDeviceSynchronize();
            break;
        case 3: /* pageable */
            error = cudaMemcpyAsync(device, host, sizeof host, cudaMemcpyHostToDevice, a);
            break;
        case 4:
            error = cudaMemcpy(device, host, sizeof host, cudaMemcpyHostToDevice);
            break;
        default:
            error = cudaStreamWaitEvent(a, outside, 0);
            assert_int_equal(error, cudaErrorStreamCaptureIsolation);
        }
        if (call < 5)
            assert_int_equal(error, cudaErrorStreamCaptureUnsupported);
        assert_int_equal(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureInvalidated);
        assert_null(graph);
    }
    /* A stream that joined and is not joined back. */
    cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal);
    cudaMemsetAsync(device, 0, sizeof host, a);
    cudaEventRecord(event, a);
    cudaStreamWaitEvent(b, event, 0);
    cudaMemsetAsync(device, 1, sizeof host, b);
    assert_int_equal(cudaEventSynchronize(event), cudaErrorCapturedEvent);
    assert_int_equal(cudaStreamEndCapture(b, &graph), cudaErrorStreamCaptureUnmatched);
    assert_int_not_equal(cudaStreamEndCapture(a, &graph), cudaSuccess);
    cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal);
    cudaEventRecord(event, a);
    cudaStreamWaitEvent(b, event, 0);
    cudaMemsetAsync(device, 1, sizeof host, b);
    assert_int_equal(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureUnjoined);
    /* A graph that was captured has not run. */
    cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal);
    cudaMemsetAsync(device, 1, sizeof host, a);
    assert_int_equal(cudaStreamEndCapture(a, &graph), cudaSuccess);
    size_t nodes;
    assert_int_equal(cudaGraphGetNodes(graph, NULL, &nodes), cudaSuccess);
    assert_int_equal(nodes, 1);
    cudaGraphDestroy(graph);
    cudaGetLastError();
    cudaFree(device);
    cudaEventDestroy(event);
    cudaEventDestroy(outside);
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
}

/* Pinned memory that the host overwrites before the copy has run: some seed must show it, and one must not, since a
 * program that is never wrong would prove nothing. */
static void pinned_memory_is_read_late(void **state) {
    (void)state;
    int wrong = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        simcuda_seed(seed);
        int *pinned, *device, got = 0;
        cudaStream_t stream;
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        cudaMallocHost((void **)&pinned, sizeof *pinned);
        cudaMalloc((void **)&device, sizeof *device);
        *pinned = 1;
        cudaMemcpyAsync(device, pinned, sizeof *pinned, cudaMemcpyHostToDevice, stream);
        *pinned = 2;
        cudaStreamSynchronize(stream);
        cudaMemcpy(&got, device, sizeof got, cudaMemcpyDeviceToHost);
        wrong += got == 2;
        cudaFree(device);
        cudaFreeHost(pinned);
        cudaStreamDestroy(stream);
    }
    assert_in_range(wrong, 1, 19);
}

/* 512 elements of 4 bytes: read and written once, by accesses of 16 bytes, of 4 side by side, of 4 far apart. */
static void counters(void **state) {
    (void)state;
    simcuda_seed(0);
    for (int kind = 0; kind < 3; kind++) {
        const simcuda_counters c = simcuda_case_count(kind);
        assert_int_equal(c.launches, 1);
        assert_int_equal(c.read_bytes, 2048);
        assert_int_equal(c.written_bytes, 2048);
        assert_int_equal(c.distinct_read_bytes, 2048);
        assert_int_equal(c.distinct_written_bytes, 2048);
        assert_int_equal(c.accesses, kind == 0 ? 256 : 1024);
        assert_int_equal(c.wide_accesses, kind == 0 ? 256 : 0);
        assert_int_equal(c.wide_bytes, kind == 0 ? 4096 : 0);
        assert_int_equal(c.sector_bytes, kind < 2 ? 4096 : 8 * 4096); /* apart: a sector of 32 bytes for each */
    }
}

/* Every 16-bit pattern comes back from fp32, and rounding agrees with the host's own conversions. */
static void formats(void **state) {
    (void)state;
    assert_true(simcuda_case_formats());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_memory),
        cmocka_unit_test(global_memory),
        cmocka_unit_test(meetings),
        cmocka_unit_test(streams),
        cmocka_unit_test(correct_kernels),
        cmocka_unit_test(correct_streams),
        cmocka_unit_test(limits),
        cmocka_unit_test(captures),
        cmocka_unit_test(pinned_memory_is_read_late),
        cmocka_unit_test(counters),
        cmocka_unit_test(formats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
