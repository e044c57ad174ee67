/* What the GPU's kernels reach: builds a training step of a few layers of a published model on one rank, executes it on
 * the device of libfsdp_cuda.so operation by operation, each `repeats` times in a row between two stamps of the device,
 * and prints a row per kind (or per kind and shapes): calls, microseconds, share, and the rates in TFLOP/s and GB/s by
 * definition (engine/device/operation.h) beside the GPU's limits, where they are known, and beside the
 * best matmul and copy of the same run. The line at the end compares the sum with whole steps through the executor.
 *
 * usage: bench_gpu [--model PRESET] [--layers N] [--width N] [--vocabulary N] [--sequences N] [--sequence N]
 *                  [--compute fp32|tf32|bf16|fp16] [--fuse no|yes] [--repeats N] [--by kind|shape] */
#include "bench/step.h"
#include "comm/patience.h"
#include "engine/device/module.h"
#include "launch/presets.h"

#include <math.h>

typedef struct options {
    model_shape shape;
    const char *model;
    int64_t sequences, sequence;
    int compute; /* config_compute */
    int fuse;    /* config_switch */
    int repeats;
    bool by_shape;
} options;

/* ---- limits ---- */

/* What the GPU reaches at most, per second; NAN: not known. */
typedef struct limits {
    double bytes;     /* of its memory */
    device_peak peak; /* of its multiprocessors */
} limits;

/* Memory of data sheets, by a part of the GPU's name. */
static const struct {
    const char *name;
    double bytes;
} memories[] = {
    {"H200", 4.8e12},   {"H100 PCIe", 2.0e12},        {"H100 NVL", 3.9e12},   {"H100", 3.35e12},
    {"B200", 8.0e12},   {"A100-SXM4-80GB", 2.039e12}, {"A100", 1.555e12},     {"A10", 0.6e12},
    {"L40S", 0.864e12}, {"RTX 4090", 1.008e12},       {"RTX 3090", 0.936e12},
};
enum { MEMORIES = sizeof memories / sizeof *memories };

static limits limits_of(const device *gpu, const precision_settings *precision) {
    limits of = {.bytes = NAN, .peak = gpu->functions->peak(gpu, precision->storage, precision->tf32)};
    for (int i = 0; i < MEMORIES && isnan(of.bytes); i++)
        if (strstr(gpu->functions->describe(gpu), memories[i].name) != NULL)
            of.bytes = memories[i].bytes;
    return of;
}

static bool open_on_gpu(ready_step *s, const options *o, error *e) {
    config c = step_config(o->sequences, o->sequence);
    const device_module *module = NULL;
    device *gpu = NULL;
    c.precision.compute = o->compute;
    c.device.fuse = o->fuse;
    if (!device_module_load(&module, e) || !module->device->open(&(device_settings){.threads = 1}, &gpu, e))
        return false;
    gpu->communication = module->communication;
    return step_open(s, gpu, &c, &o->shape, e);
}

/* ---- measurement ---- */

static double time_launch(const ready_step *s, const launch *l, const void *repeats) {
    const device_functions *f = s->device->functions;
    const int count = *(const int *)repeats;
    f->launch(s->device, STREAM_COMPUTE, l); /* the first may choose an algorithm */
    f->stamp(s->device, STREAM_COMPUTE, 0);
    for (int i = 0; i < count; i++)
        f->launch(s->device, STREAM_COMPUTE, l);
    f->stamp(s->device, STREAM_COMPUTE, 1);
    step_synchronize(s);
    return f->elapsed(s->device, 0, 1) / count;
}

static double step_seconds(ready_step *s) {
    const double start = patience_clock();
    step_run(s);
    return patience_clock() - start;
}

/* ---- the table ---- */

/* The best rate among operations: of matmuls in FLOP/s, of casts, additions and norms in bytes per second. */
typedef struct best_rates {
    double flops, bytes;
} best_rates;

static best_rates best_of(const program *p, const double *seconds) {
    best_rates best = {0, 0};
    for (int32_t i = 0; i < p->operation_count; i++) {
        const launch l = program_launch(p, &p->operations[i], NULL);
        if (l.kind == OPERATION_MATMUL)
            best.flops = fmax(best.flops, operation_flops(&l) / seconds[i]);
        else if (!operation_is_collective(l.kind) && l.kind != OPERATION_COPY_IN && l.kind != OPERATION_COPY_OUT)
            best.bytes = fmax(best.bytes, operation_bytes(&l) / seconds[i]);
    }
    return best;
}

static void print_rate(double rate, double scale, const char *unit, double limit, double best) {
    printf("  %8.2f %s", rate * scale, unit);
    if (!isnan(limit))
        printf(" %5.1f%%", 100 * rate / limit);
    printf(" (%4.2f)", rate / best);
}

static void print_row(const row *r, double total, const limits *limit, best_rates best) {
    printf("%-48s %5d %10.1f us %5.1f%%", r->label, r->calls, r->seconds * 1e6, 100 * r->seconds / total);
    print_rate(r->bytes / r->seconds, 1e-9, "GB/s", limit->bytes, best.bytes);
    if (r->flops > 0)
        print_rate(r->flops / r->seconds, 1e-12, "TFLOP/s", limit->peak.flops, best.flops);
    printf("\n");
}

static void print_limits(const limits *limit, best_rates best) {
    if (isnan(limit->bytes))
        printf("limits: of this GPU's memory not known");
    else
        printf("limits: %.0f GB/s (data sheet)", limit->bytes * 1e-9);
    if (isnan(limit->peak.flops))
        printf("; of its multiprocessors not known\n");
    else
        printf("; %.0f TFLOP/s (%s FLOP)\n", limit->peak.flops * 1e-12, limit->peak.basis);
    printf("best of this run, behind (): %.2f GB/s, %.3f TFLOP/s\n", best.bytes * 1e-9, best.flops * 1e-12);
}

static void measure_and_print(ready_step *s, const options *o) {
    const program *p = s->plan->train->program;
    const double tokens = (double)(o->sequences * o->sequence);
    const limits limit = limits_of(s->device, &s->plan->precision);
    double whole = INFINITY, total = 0;
    for (int i = 0; i < o->repeats + 1; i++)
        whole = fmin(whole, step_seconds(s)); /* the first of two or more chooses algorithms */
    double *seconds = memory_allocate((size_t)p->operation_count, sizeof *seconds);
    step_measure(s, time_launch, &o->repeats, seconds);
    const best_rates best = best_of(p, seconds);
    int count;
    row *rows = rows_of(p, seconds, o->by_shape, &count);
    for (int i = 0; i < count; i++)
        total += rows[i].seconds;
    printf("%s, %lld layers, %lld x %lld tokens, %s; %s\n", o->model, (long long)o->shape.layers,
           (long long)o->sequences, (long long)o->sequence,
           (const char *[]){"fp32", "tf32", "bf16", "fp16"}[o->compute], s->device->functions->describe(s->device));
    print_limits(&limit, best);
    for (int i = 0; i < count; i++)
        print_row(&rows[i], total, &limit, best);
    const double flops = model_flops_per_token(s->plan->model, o->sequence) * tokens;
    printf("sum of operations %.3f ms; whole step %.3f ms, %.0f tokens/s, %.3f TFLOP/s", total * 1e3, whole * 1e3,
           tokens / whole, flops / whole * 1e-12);
    if (!isnan(limit.peak.flops))
        printf(", MFU %.3f", flops / whole / limit.peak.flops);
    printf("\n");
    free(rows);
    free(seconds);
}

/* ---- the program ---- */

/* Position of a word among those divided by bars; -1: none of them. */
static int word_among(const char *word, const char *words) {
    for (int i = 0;; i++) {
        const size_t length = strcspn(words, "|");
        if (strlen(word) == length && memcmp(word, words, length) == 0)
            return i;
        if (words[length] == '\0')
            return -1;
        words += length + 1;
    }
}

static bool set_model(options *o, const char *name) {
    const int preset = word_among(name, PRESET_NAMES);
    if (preset < 0)
        return false;
    o->model = name;
    o->shape = *preset_shape(preset);
    return true;
}

/* Heads of the model's head width, so that all shapes fit. */
static bool set_width(model_shape *s, int64_t width) {
    if (width < s->head_width || width % s->head_width != 0)
        return false;
    s->heads = width / s->head_width;
    s->kv_heads = s->family == FAMILY_GPT2 ? s->heads : 1;
    s->feed_forward = 4 * width;
    s->width = width;
    return true;
}

static bool set_option(options *o, const char *key, const char *value) {
    const int64_t number = atoll(value);
    if (strcmp(key, "--model") == 0)
        return set_model(o, value);
    if (strcmp(key, "--compute") == 0)
        return (o->compute = word_among(value, "fp32|tf32|bf16|fp16")) >= 0;
    if (strcmp(key, "--fuse") == 0)
        return (o->fuse = word_among(value, "no|yes")) >= 0;
    if (strcmp(key, "--by") == 0) {
        o->by_shape = strcmp(value, "shape") == 0;
        return o->by_shape || strcmp(value, "kind") == 0;
    }
    if (strcmp(key, "--width") == 0)
        return set_width(&o->shape, number);
    int64_t *const numbers[] = {&o->shape.layers, &o->shape.vocabulary, &o->sequences, &o->sequence};
    const char *const names[] = {"--layers", "--vocabulary", "--sequences", "--sequence"};
    for (int i = 0; i < 4; i++)
        if (strcmp(key, names[i]) == 0) {
            *numbers[i] = number;
            return number > 0;
        }
    o->repeats = (int)number;
    return strcmp(key, "--repeats") == 0 && number > 0;
}

static bool options_parse(int argc, char **argv, options *o) {
    *o = (options){.sequences = 4, .sequence = 1024, .compute = CONFIG_BF16, .fuse = CONFIG_YES, .repeats = 10};
    set_model(o, "gpt2");
    for (int i = 1; i + 1 < argc; i += 2)
        if (!set_option(o, argv[i], argv[i + 1]))
            return false;
    return argc % 2 == 1;
}

int main(int argc, char **argv) {
    options o;
    if (!options_parse(argc, argv, &o)) {
        fprintf(stderr, "usage: bench_gpu [--model PRESET] [--layers N] [--width N] [--vocabulary N] [--sequences N] "
                        "[--sequence N] [--compute fp32|tf32|bf16|fp16] [--fuse no|yes] [--repeats N] "
                        "[--by kind|shape]\n");
        return EXIT_USAGE;
    }
    error e = {0};
    ready_step s = {0};
    if (!open_on_gpu(&s, &o, &e)) {
        fprintf(stderr, "bench_gpu: %s\n", e.message);
        return e.code;
    }
    measure_and_print(&s, &o);
    step_close(&s);
    return 0;
}
