/* What the benchmarks of single operations have in common: a training step to take them from, and a table with a row
 * per kind of operation, or per kind and shapes. */
#ifndef FSDP_BENCH_STEP_H
#define FSDP_BENCH_STEP_H

#include "engine/checked.h"
#include "launch/plan.h"
#include "launch/token_order.h"

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
        used += (size_t)snprintf(label + used, LABEL - used, " %c%c%s%s", l->attributes.transpose_a ? 't' : 'n',
                                 l->attributes.transpose_b ? 't' : 'n', l->in[2].data != NULL ? " bias" : "",
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
 * operation. launch_of: its launch. */
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
