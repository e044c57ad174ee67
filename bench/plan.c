/* What planning costs before the first step: makes the training step of rank 0 of 1,024 as launch/plan does, for models
 * of very many layers or micro-batches, and prints the processor's seconds that each phase takes, the size of the
 * program, and how far the arena is above the bound that the packing aims at. Runs nothing and allocates no arena.
 *
 * usage: bench_plan */
#include "bench/yardstick.h"
#include "engine/autodiff.h"
#include "engine/checked.h"
#include "engine/place.h"
#include "engine/recompute.h"
#include "engine/verify.h"
#include "engine/waits.h"
#include "launch/presets.h"
#include "optim/adamw.h"
#include "shard/schedule.h"

typedef struct job {
    const char *name;
    int preset; /* place in presets */
    int64_t layers, passes;
    recompute_policy recompute;
} job;

static const job jobs[] = {
    {"llama-3.1-8b", 6, 32, 1, RECOMPUTE_NONE},
    {"llama-3.1-70b, 64 passes", 7, 80, 64, RECOMPUTE_NONE},
    {"llama-3.1-70b, 64 passes, recompute", 7, 80, 64, RECOMPUTE_BLOCK},
    {"llama-3.2-1b, 2000 layers", 4, 2000, 1, RECOMPUTE_NONE},
    {"llama-3.2-1b, 2000 layers, 3 passes", 4, 2000, 3, RECOMPUTE_BLOCK},
};

enum { RANKS = 1024, SEQUENCE = 4096 };

/* Prints what has passed since the last call. */
static void lap(double *since, const char *phase) {
    const double now = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    printf("  %-12s %7.3f s\n", phase, now - *since);
    fflush(stdout);
    *since = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
}

static void print_program(const program *p) {
    const double used = (double)(p->arena_bytes - p->persistent_bytes);
    printf("  %d tensors, %d operations, %d waits; %.1f MB placed, %.2f %% above the bound\n", p->tensor_count,
           p->operation_count, waits_count(p), used * 1e-6,
           100 * (used / (double)(p->held_bytes - p->persistent_bytes) - 1));
}

static step *sharded_step(const job *j, const model *m, const flat_layout *layout, double *since) {
    const precision_settings fp32 = {0};
    program *forward = model_forward(m, 1, SEQUENCE, HEAD_LOSS, &fp32);
    lap(since, "forward");
    bool *keep = recompute_keep(forward, j->recompute, 0);
    program *micro = autodiff(forward, keep, &fp32);
    lap(since, "backward");
    const schedule_settings settings = {
        .ranks = RANKS, .passes = j->passes, .prefetch = 1, .reduce_each = true, .optimizer = true};
    step *s = shard_schedule(micro, &m->list, layout, &settings);
    const optimizer_settings adamw = {0.9, 0.95, 1e-8, 0.1, 1, 0};
    optimizer_append(s, &m->list, layout, &adamw);
    lap(since, "shard");
    program_destroy(micro);
    program_destroy(forward);
    free(keep);
    return s;
}

static void plan_job(const job *j, device *d) {
    error e = {0};
    printf("%s\n", j->name);
    double since = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    model_shape shape = *preset_shape(j->preset);
    shape.layers = j->layers;
    model *m = model_create(&shape, 1);
    flat_layout *layout = flat_layout_create(&m->list, RANKS, 0);
    lap(&since, "parameters");
    step *s = sharded_step(j, m, layout, &since);
    place_workspaces(s->program, d);
    lap(&since, "workspaces");
    place(s->program, INT64_MAX);
    lap(&since, "place");
    waits_derive(s->program);
    lap(&since, "waits");
    check(verify(s->program, &e), "%s", e.message);
    lap(&since, "verify");
    const memory_profile memory = program_memory(s->program);
    lap(&since, "liveness");
    printf("  %.1f MB live at operation %d\n", (double)memory.live * 1e-6, memory.operation);
    print_program(s->program);
    step_destroy(s);
    flat_layout_destroy(layout);
    model_destroy(m);
}

int main(void) {
    device *d = NULL;
    error e = {0};
    check(device_cpu.open(&(device_settings){.threads = 1}, &d, &e), "%s", e.message);
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
        plan_job(&jobs[i], d);
    device_cpu.close(d);
    return 0;
}
