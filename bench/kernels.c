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
#include "launch/weights.h"

enum { SEQUENCES = 4, SEQUENCE = 256, TOKENS = SEQUENCES * SEQUENCE, VOCABULARY = 50257 };

typedef struct options {
    model_family family;
    int threads, repeats;
    bool by_shape;
    clockid_t clock;
} options;

/* A step, ready to execute on one rank. */
typedef struct bench {
    world world;
    device *device;
    plan *plan;
    device_memory arena;
    run *run;
} bench;

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

static bool bench_open(bench *b, const options *o, error *e) {
    const config c = step_config(SEQUENCES, SEQUENCE);
    const model_shape shape = shape_of(o->family);
    b->world = world_imagined(1);
    if (!device_cpu.open(&(device_settings){.threads = o->threads}, &b->device, e))
        return false;
    if (!plan_create(&c, &shape, &b->world, b->device, (plan_wishes){.train = true}, INT64_MAX, &b->plan, e))
        return false;
    const run_settings settings = plan_run_settings(b->plan, &c);
    if (!device_cpu.allocate(b->device, (size_t)b->plan->arena_bytes, &b->arena, e) ||
        !run_create(b->plan->train->program, &b->world, b->device, &b->arena, &settings, &b->run, e))
        return false;
    weights_prepare(b->plan, b->plan->train, b->run, SEQUENCE);
    weights_initialise(b->plan, b->plan->train, b->run, 1);
    step_fill_batch(b->run, TOKENS, VOCABULARY);
    return true;
}

static void bench_close(bench *b) {
    run_destroy(b->run);
    plan_destroy(b->plan);
    device_cpu.release(b->device, &b->arena);
    device_cpu.close(b->device);
    world_close(&b->world);
}

/* ---- measurement ---- */

/* With one rank a collective copies the rank's part, if it does not lie in its place already. */
static launch launch_of(const bench *b, const operation *o) {
    launch l = program_launch(b->plan->train->program, o, b->arena.base);
    size_t bytes;
    if (o->kind == OPERATION_COPY_IN || o->kind == OPERATION_COPY_OUT)
        l.workspace = (char *)run_host(b->run, o->attributes.host, &bytes) + o->attributes.host_offset;
    if (operation_is_collective(o->kind) && l.in[0].data != l.out[0].data)
        memcpy(l.out[0].data, l.in[0].data, (size_t)(operand_count(&l.in[0]) * dtype_bytes(l.in[0].type)));
    return l;
}

static double step_seconds(bench *b, clockid_t clock) {
    error e = {0};
    const double start = seconds_of(clock);
    check(run_step(b->run, &e), "%s", e.message);
    return seconds_of(clock) - start;
}

/* Executes the list once; keeps the smallest time of each operation. */
static void measure_operations(const bench *b, clockid_t clock, double *seconds) {
    const program *p = b->plan->train->program;
    for (int32_t i = 0; i < p->operation_count; i++) {
        const launch l = launch_of(b, &p->operations[i]);
        if (operation_is_collective(l.kind))
            continue;
        const double start = seconds_of(clock);
        device_cpu.launch(b->device, 0, &l);
        const double spent = seconds_of(clock) - start;
        seconds[i] = seconds[i] == 0 || spent < seconds[i] ? spent : seconds[i];
    }
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
static double print_table(const bench *b, const double *seconds, bool by_shape, double peak, double copy) {
    int count;
    double total = 0;
    row *rows = rows_of(b->plan->train->program, seconds, by_shape, &count);
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

static void measure_and_print(bench *b, const options *o) {
    const double peak = sgemm_rate(o->clock) * o->threads, copy = copy_rate(b->device, o->clock);
    double *seconds = memory_allocate((size_t)b->plan->train->program->operation_count, sizeof *seconds);
    double whole = step_seconds(b, o->clock); /* the first step of two meets new pages */
    for (int i = 0; i < o->repeats; i++) {
        measure_operations(b, o->clock, seconds);
        const double spent = step_seconds(b, o->clock);
        whole = spent < whole ? spent : whole;
    }
    printf("%s, %s; %d x sgemm %.1f GFLOP/s, copy %.1f GB/s\n", model_family_name(o->family),
           device_cpu.describe(b->device), o->threads, peak / o->threads * 1e-9, copy * 1e-9);
    const double total = print_table(b, seconds, o->by_shape, peak, copy);
    const double flops = model_flops_per_token(b->plan->model, SEQUENCE) * TOKENS;
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
    bench b = {0};
    if (!bench_open(&b, &o, &e)) {
        fprintf(stderr, "bench_kernels: %s\n", e.message);
        return e.code;
    }
    measure_and_print(&b, &o);
    bench_close(&b);
    return 0;
}
