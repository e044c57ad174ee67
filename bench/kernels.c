/* Where a training step's time goes: builds the step of 6 layers, width 384, 6 heads, vocabulary 50257, 4 sequences of
 * 256 tokens on one rank, executes it operation by operation, and prints a row per kind (or per kind and shapes):
 * calls, milliseconds, share of the step, and the rates in GFLOP/s and GB/s by definition (engine/device/operation.h)
 * beside the best sgemm and copy of the same run. Of every operation the fastest of all repeats counts; the line at the
 * end compares their sum with whole steps through the executor. By the processor's clock, time in which the process did
 * not run does not count: for a machine that does other work as well, with one thread.
 *
 * usage: bench_kernels [--family gpt2|llama] [--threads N] [--repeats N] [--by kind|shape] [--clock wall|processor] */
#include "bench/step.h"
#include "bench/yardstick.h"
#include "engine/device/cpu/pool.h"

enum { SEQUENCES = 4, SEQUENCE = 256, TOKENS = SEQUENCES * SEQUENCE, VOCABULARY = 50257 };

typedef struct options {
    model_family family;
    int threads, repeats;
    bool by_shape;
    clockid_t clock;
} options;

/* ---- preparation ---- */

static model_shape shape_of(model_family family) {
    return (model_shape){.family = family,
                         .layers = 6,
                         .width = 384,
                         .heads = 6,
                         .kv_heads = 6,
                         .head_width = 64,
                         .feed_forward = family == FAMILY_GPT2 ? 1536 : 1024,
                         .vocabulary = VOCABULARY,
                         .context = SEQUENCE,
                         .tied = family == FAMILY_GPT2,
                         .norm_epsilon = 1e-5,
                         .rope_theta = 10000,
                         .initialisation = 0.02};
}

static bool open_on_cpu(ready_step *s, const options *o, error *e) {
    const config c = step_config(SEQUENCES, SEQUENCE);
    const model_shape shape = shape_of(o->family);
    device *cpu = NULL;
    return device_cpu.open(&(device_settings){.threads = o->threads}, &cpu, e) && step_open(s, cpu, &c, &shape, e);
}

/* ---- measurement ---- */

static double step_seconds(ready_step *s, clockid_t clock) {
    const double start = seconds_of(clock);
    step_run(s);
    return seconds_of(clock) - start;
}

static double time_launch(const ready_step *s, const launch *l, const void *clock) {
    const double start = seconds_of(*(const clockid_t *)clock);
    device_cpu.launch(s->device, STREAM_COMPUTE, l);
    return seconds_of(*(const clockid_t *)clock) - start;
}

/* ---- the table ---- */

static void print_row(const row *r, double total, double peak, double copy) {
    printf("%-48s %5d %9.3f ms %5.1f%%", r->label, r->calls, r->seconds * 1e3, 100 * r->seconds / total);
    if (r->flops > 0)
        printf("  %7.1f GFLOP/s %5.2f", r->flops / r->seconds * 1e-9, r->flops / r->seconds / peak);
    else
        printf("  %21s", "");
    printf("  %6.1f GB/s %5.2f\n", r->bytes / r->seconds * 1e-9, r->bytes / r->seconds / copy);
}

/* Returns the sum of all rows. */
static double print_table(const ready_step *s, const double *seconds, bool by_shape, double peak, double copy) {
    int count;
    double total = 0;
    row *rows = rows_of(s->plan->train->program, seconds, by_shape, &count);
    for (int i = 0; i < count; i++)
        total += rows[i].seconds;
    for (int i = 0; i < count; i++)
        print_row(&rows[i], total, peak, copy);
    free(rows);
    return total;
}

/* ---- yardsticks ---- */

enum { COPY_BYTES = 1 << 20 };

typedef struct copy_job {
    char *from, *to;
} copy_job;

static void copy_tile(void *context, int64_t tile, int thread) {
    const copy_job *job = context;
    (void)thread;
    memcpy(job->to + tile * COPY_BYTES, job->from + tile * COPY_BYTES, COPY_BYTES);
}

/* Bytes read and written per second by copies on all threads of the device, far beyond every cache. */
static double copy_rate(device *d, clockid_t clock) {
    enum { TILES = 256 };
    const size_t bytes = (size_t)TILES * COPY_BYTES;
    copy_job job = {(char *)numbers_allocate(bytes / 4), (char *)numbers_allocate(bytes / 4)};
    double best = 0;
    for (int i = 0; i < 5; i++) {
        const double start = seconds_of(clock);
        pool_run(device_cpu.host_threads(d), TILES, copy_tile, &job);
        const double rate = 2.0 * (double)bytes / (seconds_of(clock) - start);
        best = rate > best ? rate : best;
    }
    free(job.from);
    free(job.to);
    return best;
}

static double sgemm_rate(clockid_t clock) {
    double best = 0;
    for (int64_t size = 1024; size <= 4096; size *= 2) {
        const double rate = sgemm_cube_rate_of(clock, size, size == 1024 ? 20 : size == 2048 ? 4 : 2);
        best = rate > best ? rate : best;
    }
    return best;
}

/* ---- the program ---- */

static bool options_parse(int argc, char **argv, options *o) {
    *o = (options){.family = FAMILY_GPT2, .threads = 1, .repeats = 5, .clock = CLOCK_MONOTONIC};
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *key = argv[i], *value = argv[i + 1];
        if (strcmp(key, "--threads") == 0 && atoi(value) > 0)
            o->threads = atoi(value);
        else if (strcmp(key, "--repeats") == 0 && atoi(value) > 0)
            o->repeats = atoi(value);
        else if (strcmp(key, "--by") == 0 && (strcmp(value, "kind") == 0 || strcmp(value, "shape") == 0))
            o->by_shape = strcmp(value, "shape") == 0;
        else if (strcmp(key, "--clock") == 0 && strcmp(value, "processor") == 0)
            o->clock = CLOCK_PROCESS_CPUTIME_ID;
        else if (strcmp(key, "--family") == 0 && strcmp(value, "llama") == 0)
            o->family = FAMILY_LLAMA;
        else if ((strcmp(key, "--family") != 0 || strcmp(value, "gpt2") != 0) &&
                 (strcmp(key, "--clock") != 0 || strcmp(value, "wall") != 0))
            return false;
    }
    return argc % 2 == 1;
}

static void measure_and_print(ready_step *s, const options *o) {
    const double peak = sgemm_rate(o->clock) * o->threads, copy = copy_rate(s->device, o->clock);
    double *seconds = memory_allocate((size_t)s->plan->train->program->operation_count, sizeof *seconds);
    double whole = step_seconds(s, o->clock); /* the first step meets new pages */
    run_enlarge_pages(s->run);
    for (int i = 0; i < o->repeats; i++) {
        step_measure(s, time_launch, &o->clock, seconds);
        const double spent = step_seconds(s, o->clock);
        whole = spent < whole ? spent : whole;
    }
    printf("%s, %s; %d x sgemm %.1f GFLOP/s, copy %.1f GB/s\n", model_family_name(o->family),
           device_cpu.describe(s->device), o->threads, peak / o->threads * 1e-9, copy * 1e-9);
    const double total = print_table(s, seconds, o->by_shape, peak, copy);
    const double flops = model_flops_per_token(s->plan->model, SEQUENCE) * TOKENS;
    printf("sum of operations %.1f ms; whole step %.1f ms, %.0f tokens/s, %.1f GFLOP/s, %.3f of sgemm\n", total * 1e3,
           whole * 1e3, TOKENS / whole, flops / whole * 1e-9, flops / whole / peak);
    free(seconds);
}

int main(int argc, char **argv) {
    options o;
    if (!options_parse(argc, argv, &o)) {
        fprintf(stderr, "usage: bench_kernels [--family gpt2|llama] [--threads N] [--repeats N] [--by kind|shape] "
                        "[--clock wall|processor]\n");
        return EXIT_USAGE;
    }
    error e = {0};
    ready_step s = {0};
    if (!open_on_cpu(&s, &o, &e)) {
        fprintf(stderr, "bench_kernels: %s\n", e.message);
        return e.code;
    }
    measure_and_print(&s, &o);
    step_close(&s);
    return 0;
}
