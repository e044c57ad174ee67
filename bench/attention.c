/* Rates of attention and its gradient over what the causal half of T x T needs, as ratios to the best cube of oneDNN's
 * sgemm on as many cores, both in this run.
 *
 * usage: bench_attention [threads] */
#include "bench/yardstick.h"
#include "engine/checked.h"
#include "engine/device/device.h"

#include <math.h>

typedef struct shape {
    int64_t sequences, length, heads, kv_heads, width;
} shape;

static const shape shapes[] = {
    {4, 256, 6, 6, 64},  {1, 1024, 6, 6, 64},  {1, 1024, 12, 4, 64},
    {1, 2048, 4, 1, 64}, {1, 4096, 2, 2, 128}, {2, 512, 8, 2, 80},
};

static operand matrix_of(int64_t rows, int64_t columns) {
    return (operand){numbers_allocate((size_t)must_multiply(rows, columns)), DTYPE_F32, {rows, columns, 1}};
}

/* Seconds of the fastest of `repeats`. */
static double fastest(device *d, launch *l, int repeats) {
    double best = INFINITY;
    l->workspace = aligned_alloc(256, (size_t)round_up((int64_t)device_cpu.workspace(d, l), 256));
    for (int i = 0; i < repeats; i++) {
        double start = seconds_now();
        device_cpu.launch(d, 0, l);
        best = fmin(best, seconds_now() - start);
    }
    free(l->workspace);
    return best;
}

static void measure(const shape *s, device *d, double yardstick) {
    int64_t tokens = s->sequences * s->length, row = (s->heads + 2 * s->kv_heads) * s->width;
    operand qkv = matrix_of(tokens, row), dqkv = matrix_of(tokens, row), out = matrix_of(tokens, s->heads * s->width);
    operand dout = matrix_of(tokens, s->heads * s->width), logsumexp = matrix_of(tokens, s->heads);
    launch forward = {.kind = OPERATION_ATTENTION, .in = {qkv}, .out = {out, logsumexp}};
    forward.attributes.sequence = s->length;
    forward.attributes.heads = s->heads;
    forward.attributes.kv_heads = s->kv_heads;
    forward.attributes.head_width = s->width;
    forward.attributes.causal = true;
    forward.attributes.scale = 1 / sqrt((double)s->width);
    launch backward = {.kind = OPERATION_ATTENTION_BACKWARD,
                       .attributes = forward.attributes,
                       .in = {dout, qkv, out, logsumexp},
                       .out = {dqkv}};
    double pairs = (double)tokens * (double)(s->length + 1) / 2 * (double)(s->heads * s->width); /* per product */
    double there = fastest(d, &forward, 10), back = fastest(d, &backward, 10);
    printf("%lld x %4lld tokens, %2lld heads on %lld of %3lld: forward %6.2f ms %.2f, backward %6.2f ms %.2f\n",
           (long long)s->sequences, (long long)s->length, (long long)s->heads, (long long)s->kv_heads,
           (long long)s->width, there * 1e3, 4 * pairs / there / yardstick, back * 1e3, 10 * pairs / back / yardstick);
    fflush(stdout);
    free(qkv.data);
    free(dqkv.data);
    free(out.data);
    free(dout.data);
    free(logsumexp.data);
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    error e = {0};
    device *d = NULL;
    if (threads < 1 || !device_cpu.open(&(device_settings){.threads = threads}, &d, &e)) {
        fprintf(stderr, "bench_attention: %s\n", threads < 1 ? "usage: bench_attention [threads]" : e.message);
        return EXIT_USAGE;
    }
    double cube = sgemm_cube_rate(1024, 20) * threads;
    printf("%s; yardstick %.1f GFLOP/s\n", device_cpu.describe(d), cube * 1e-9);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        measure(&shapes[i], d, cube);
    device_cpu.close(d);
    return 0;
}
