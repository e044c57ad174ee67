/* What the benchmarks of single operations have in common: a training step to take them from, and a table with a row
 * per kind of operation, or per kind and shapes. */
#ifndef FSDP_BENCH_STEP_H
#define FSDP_BENCH_STEP_H

#include "engine/checked.h"
#include "launch/plan.h"
#include "launch/token_order.h"
#include "launch/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One micro-batch on one rank. */
static inline config step_config(int64_t sequences, int64_t sequence) {
    config c;
    memset(&c, 0, sizeof c);
    c.train.global_batch = c.train.micro_batch = sequences;
    c.train.sequence = sequence;
    c.optimizer.betas[0] = 0.9;
    c.optimizer.betas[1] = 0.95;
    c.optimizer.epsilon = 1e-8;
    c.optimizer.weight_decay = 0.1;
    c.optimizer.clip = 1;
    c.shard.group = c.shard.prefetch = c.shard.unit = 1;
    c.shard.timeout = 60;
    c.device.fuse = CONFIG_YES;
    return c;
}

/* Tokens as rare and frequent as in a text, about. */
static inline void step_fill_batch(run *r, int64_t count, int64_t vocabulary) {
    size_t bytes;
    int32_t *tokens = run_host(r, HOST_TOKENS, &bytes), *targets = run_host(r, HOST_TARGETS, &bytes);
    int32_t *order = run_host(r, HOST_ORDER, &bytes), *scratch = memory_allocate((size_t)count, sizeof *scratch);
    double *scalars = run_host(r, HOST_SCALARS, &bytes);
    for (int64_t i = 0; i < count; i++) {
        const double u = (double)((uint32_t)i * 2654435761u) * 0x1p-32;
        tokens[i] = (int32_t)(u * u * u * (double)vocabulary);
        targets[(i + count - 1) % count] = tokens[i];
    }
    token_order(tokens, count, vocabulary, order, scratch);
    scalars[SCALAR_GRADIENT_SCALE] = 1.0 / (double)count;
    scalars[SCALAR_LEARNING_RATE] = 3e-4;
    free(scratch);
}

/* ---- the step ---- */

/* Ready to execute. */
typedef struct ready_step {
    world world;
    device *device;
    plan *plan;
    device_memory arena;
    run *run;
} ready_step;

static inline void step_synchronize(const ready_step *s) {
    error e = {0};
    check(s->device->functions->synchronize(s->device, &e), "%s", e.message);
}

/* With random weights and one batch; takes the device over. */
static inline bool step_open(ready_step *s, device *d, const config *c, const model_shape *shape, error *e) {
    const device_functions *f = d->functions;
    s->world = world_imagined(1);
    s->device = d;
    if (!plan_create(c, shape, &s->world, d, (plan_wishes){.train = true}, INT64_MAX, &s->plan, e))
        return false;
    const run_settings settings = plan_run_settings(s->plan, c);
    const program *p = s->plan->train->program;
    if (!f->allocate(d, (size_t)s->plan->arena_bytes, &s->arena, e) ||
        !run_create(p, &s->world, d, &s->arena, &settings, &s->run, e) ||
        !f->reserve(d, p->operation_count, 2 * p->operation_count, e))
        return false;
    weights_prepare(s->plan, s->plan->train, s->run, c->train.sequence);
    weights_initialise(s->plan, s->plan->train, s->run, 1);
    step_fill_batch(s->run, c->train.micro_batch * c->train.sequence, shape->vocabulary);
    return run_settle(s->run, e);
}

static inline void step_close(ready_step *s) {
    run_destroy(s->run);
    plan_destroy(s->plan);
    s->device->functions->release(s->device, &s->arena);
    s->device->functions->close(s->device);
    world_close(&s->world);
}

/* The whole of it, through the executor. */
static inline void step_run(ready_step *s) {
    error e = {0};
    check(run_step(s->run, &e), "%s", e.message);
}

/* With one rank a collective copies the rank's part, if it does not lie in its place already. */
static inline void step_copy_part(const ready_step *s, const launch *l) {
    const size_t bytes = (size_t)(operand_count(&l->in[0]) * dtype_bytes(l->in[0].type));
    if (l->in[0].data == l->out[0].data || l->in[0].type != l->out[0].type)
        return;
    void *copy = memory_allocate(bytes, 1);
    s->device->functions->read(s->device, copy, l->in[0].data, bytes);
    s->device->functions->write(s->device, l->out[0].data, copy, bytes);
    free(copy);
}

static inline launch step_launch(const ready_step *s, const operation *o) {
    launch l = program_launch(s->plan->train->program, o, s->arena.base);
    size_t bytes;
    error e = {0};
    if (o->kind == OPERATION_COPY_IN || o->kind == OPERATION_COPY_OUT)
        l.workspace = (char *)run_host(s->run, o->attributes.host, &bytes) + o->attributes.host_offset;
    check(operation_is_collective(o->kind) || s->device->functions->prepare(s->device, &l, &e), "%s", e.message);
    return l;
}

/* Executes the list once, in order and on one stream. time: seconds of one launch that is no collective. */
static inline void step_measure(const ready_step *s,
                                double (*time)(const ready_step *s, const launch *l, const void *how), const void *how,
                                double *seconds) {
    const program *p = s->plan->train->program;
    for (int32_t i = 0; i < p->operation_count; i++) {
        const launch l = step_launch(s, &p->operations[i]);
        if (operation_is_collective(l.kind)) {
            step_copy_part(s, &l);
            continue;
        }
        const double spent = time(s, &l, how);
        seconds[i] = seconds[i] == 0 || spent < seconds[i] ? spent : seconds[i];
    }
}

/* ---- the table ---- */

enum { LABEL = 112 };

typedef struct row {
    char label[LABEL];
    int calls;
    double seconds, flops, bytes;
} row;

static inline size_t append_operand(char *text, size_t used, const operand *o) {
    int dimensions = OPERAND_DIMENSIONS;
    while (dimensions > 1 && o->shape[dimensions - 1] == 1)
        dimensions--;
    for (int i = 0; o->data != NULL && i < dimensions && used < LABEL; i++)
        used += (size_t)snprintf(text + used, LABEL - used, "%s%lld", i == 0 ? " " : "x", (long long)o->shape[i]);
    return used;
}

static inline void label_of(const launch *l, bool by_shape, char label[LABEL]) {
    size_t used = (size_t)snprintf(label, LABEL, "%s", operation_signature_of(l->kind)->name);
    if (!by_shape)
        return;
    const int operands = l->kind == OPERATION_MATMUL ? 2 : 1;
    if (l->kind == OPERATION_MATMUL)
        used += (size_t)snprintf(label + used, LABEL - used, " %c%c%s%s%s%s", l->attributes.transpose_a ? 't' : 'n',
                                 l->attributes.transpose_b ? 't' : 'n', l->in[2].data != NULL ? " bias" : "",
                                 l->attributes.gelu ? " gelu" : "", l->out[2].data != NULL ? " sums" : "",
                                 l->accumulate != 0 ? " add" : "");
    for (int i = 0; i < operands; i++)
        used = append_operand(label, used, &l->in[i]);
    if (l->in[0].data == NULL)
        append_operand(label, used, &l->out[0]);
}

static inline row *find_row(row *rows, int *count, const char *label) {
    for (int i = 0; i < *count; i++)
        if (strcmp(rows[i].label, label) == 0)
            return &rows[i];
    row *added = &rows[(*count)++];
    *added = (row){0};
    strcpy(added->label, label);
    return added;
}

static inline int slower_first(const void *a, const void *b) {
    const double x = ((const row *)a)->seconds, y = ((const row *)b)->seconds;
    return (x < y) - (x > y);
}

/* The rows of a program's operations, slowest first, collectives left out; freed by the caller. seconds: of each
 * operation. */
static inline row *rows_of(const program *p, const double *seconds, bool by_shape, int *count) {
    row *rows = memory_allocate((size_t)p->operation_count, sizeof *rows);
    *count = 0;
    for (int32_t i = 0; i < p->operation_count; i++) {
        const launch l = program_launch(p, &p->operations[i], NULL);
        if (operation_is_collective(l.kind))
            continue;
        char label[LABEL];
        label_of(&l, by_shape, label);
        row *r = find_row(rows, count, label);
        r->calls++;
        r->seconds += seconds[i];
        r->flops += operation_flops(&l);
        r->bytes += operation_bytes(&l);
    }
    qsort(rows, (size_t)*count, sizeof *rows, slower_first);
    return rows;
}

#endif
