/* Rates of the matrix products of a training step, one row per shape, as ratios to the best cube of oneDNN's sgemm on
 * as many cores, both in this run; dnnl_sgemm itself on the same shape for comparison (one thread only).
 *
 * usage: bench_matmul [threads] */
#include "bench/yardstick.h"
#include "engine/checked.h"
#include "engine/device/device.h"

typedef struct shape {
    const char *name;
    int64_t m, n, k;
    bool transpose_a, transpose_b, accumulate, bias;
} shape;

/* Width 384, feed forward 1536, vocabulary 50257, 1024 tokens; the head in chunks of rows. GPT-2 stores weights (in,
 * out), Llama (out, in). */
#define HEAD_SHAPES(rows)                                                                                              \
    {"head, " #rows " rows", rows, 50257, 384, false, true, false, false},                                             \
        {"head, input gradient", rows, 384, 50257, false, false, false, false}, {                                      \
        "head, weight gradient", 50257, 384, rows, true, false, true, false                                            \
    }

static const shape shapes[] = {
    {"qkv (in, out)", 1024, 1152, 384, false, false, false, true},
    {"qkv (out, in)", 1024, 1152, 384, false, true, false, false},
    {"qkv, input gradient (in, out)", 1024, 384, 1152, false, true, false, false},
    {"qkv, input gradient (out, in)", 1024, 384, 1152, false, false, false, false},
    {"qkv, weight gradient (in, out)", 384, 1152, 1024, true, false, false, false},
    {"qkv, weight gradient (out, in)", 1152, 384, 1024, true, false, true, false},
    {"projection", 1024, 384, 384, false, false, false, true},
    {"projection, weight gradient", 384, 384, 1024, true, false, false, false},
    {"feed forward up", 1024, 1536, 384, false, false, false, true},
    {"feed forward down", 1024, 384, 1536, false, false, false, true},
    {"feed forward, weight gradient", 1536, 384, 1024, true, false, false, false},
    HEAD_SHAPES(128),
    HEAD_SHAPES(256),
    HEAD_SHAPES(512),
    HEAD_SHAPES(1024),
    {"width 2048", 512, 2048, 2048, false, true, false, false},
    {"one row", 1, 1536, 384, false, true, false, false},
};

static double library_rate(const shape *s, const launch *l) {
    double start = seconds_now();
    dnnl_sgemm(s->transpose_a ? 'T' : 'N', s->transpose_b ? 'T' : 'N', s->m, s->n, s->k, 1.0f, l->in[0].data,
               s->transpose_a ? s->m : s->k, l->in[1].data, s->transpose_b ? s->k : s->n, s->accumulate ? 1.0f : 0.0f,
               l->out[0].data, s->n);
    return 2.0 * (double)s->m * (double)s->n * (double)s->k / (seconds_now() - start);
}

static double own_rate(const shape *s, device *d, const launch *l) {
    double start = seconds_now();
    device_cpu.launch(d, 0, l);
    return 2.0 * (double)s->m * (double)s->n * (double)s->k / (seconds_now() - start);
}

static operand matrix_of(int64_t rows, int64_t columns) {
    return (operand){numbers_allocate((size_t)must_multiply(rows, columns)), DTYPE_F32, {rows, columns, 1}};
}

static void measure(const shape *s, device *d, double yardstick, bool library) {
    launch l = {.kind = OPERATION_MATMUL, .accumulate = s->accumulate};
    l.attributes.transpose_a = s->transpose_a;
    l.attributes.transpose_b = s->transpose_b;
    l.in[0] = s->transpose_a ? matrix_of(s->k, s->m) : matrix_of(s->m, s->k);
    l.in[1] = s->transpose_b ? matrix_of(s->n, s->k) : matrix_of(s->k, s->n);
    if (s->bias)
        l.in[2] = matrix_of(s->n, 1);
    l.out[0] = matrix_of(s->m, s->n);
    l.workspace = aligned_alloc(256, (size_t)round_up((int64_t)device_cpu.workspace(d, &l), 256));
    double own = 0, theirs = 0, flops = 2.0 * (double)s->m * (double)s->n * (double)s->k;
    int repeats = (int)maximum(4, minimum(40, (int64_t)(2e10 / flops)));
    for (int i = 0; i < repeats; i++) {
        double rate = own_rate(s, d, &l);
        own = rate > own ? rate : own;
        rate = library ? library_rate(s, &l) : 0;
        theirs = rate > theirs ? rate : theirs;
    }
    printf("%-32s %5lld %5lld %5lld  %6.1f GFLOP/s  %.2f", s->name, (long long)s->m, (long long)s->n, (long long)s->k,
           own * 1e-9, own / yardstick);
    if (library)
        printf("   dnnl_sgemm %6.1f  %.2f", theirs * 1e-9, theirs / yardstick);
    printf("\n");
    fflush(stdout);
    for (int i = 0; i < 3; i++)
        free(l.in[i].data);
    free(l.out[0].data);
    free(l.workspace);
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    error e = {0};
    device *d = NULL;
    if (threads < 1 || !device_cpu.open(&(device_settings){.threads = threads}, &d, &e)) {
        fprintf(stderr, "bench_matmul: %s\n", threads < 1 ? "usage: bench_matmul [threads]" : e.message);
        return EXIT_USAGE;
    }
    double cube = 0;
    for (int64_t size = 1024; size <= 4096; size *= 2) {
        double rate = sgemm_cube_rate(size, size == 1024 ? 20 : size == 2048 ? 4 : 2);
        printf("dnnl_sgemm %lld: %.1f GFLOP/s\n", (long long)size, rate * 1e-9);
        cube = rate > cube ? rate : cube;
    }
    printf("%s; yardstick %d x %.1f GFLOP/s\n", device_cpu.describe(d), threads, cube * 1e-9);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        measure(&shapes[i], d, cube * threads, threads == 1);
    device_cpu.close(d);
    return 0;
}
