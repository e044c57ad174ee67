#include "support/small_programs.h"

#include "engine/autodiff.h"
#include "engine/error.h"
#include "engine/fuse.h"
#include "engine/place.h"
#include "engine/waits.h"
#include "optim/adamw.h"
#include "shard/schedule.h"
#include "support/small_training.h"

#include <stdlib.h>
#include <string.h>

static device *open_cpu(void) {
    const device_settings settings = {.threads = 1};
    device *d = NULL;
    error e = {0};
    check(device_cpu.open(&settings, &d, &e), "%s", e.message);
    return d;
}

static bool fuses_all(device *d, const launch *l) {
    (void)d, (void)l;
    return true;
}

static void fuse_all(program *p) {
    const device_functions functions = {.fuses = fuses_all};
    device all = {.functions = &functions};
    fuse(p, &all);
}

step *small_program_build(const small_program *job) {
    device *d = open_cpu();
    model *m = model_create(&job->shape, job->unit_blocks);
    flat_layout *layout = flat_layout_create(&m->list, job->group, 0);
    program *forward = model_forward(m, job->micro_batch, job->sequence, HEAD_LOSS, &job->precision);
    bool *keep = recompute_keep(forward, job->recompute, recompute_levels(forward) / 2);
    program *micro = autodiff(forward, keep, &job->precision);
    const schedule_settings settings = {.ranks = job->ranks,
                                        .passes = job->passes,
                                        .prefetch = job->prefetch,
                                        .keep_gathered = job->keep_gathered,
                                        .reduce_each = !job->reduce_last,
                                        .optimizer = true,
                                        .precision = job->precision};
    step *s = shard_schedule(micro, &m->list, layout, &settings);
    const optimizer_settings adamw = {0.9, 0.95, 1e-8, 0.1, 1, job->precision.loss_scale_interval};
    optimizer_append(s, &m->list, layout, &adamw);
    if (job->fused)
        fuse_all(s->program);
    place_workspaces(s->program, d);
    place(s->program, INT64_MAX);
    waits_derive(s->program);
    program_destroy(micro);
    free(keep);
    program_destroy(forward);
    flat_layout_destroy(layout);
    model_destroy(m);
    device_cpu.close(d);
    return s;
}

small_program small_program_of(const matrix_run *run) {
    return (small_program){.shape = small_shape(run->family, run->family == FAMILY_GPT2),
                           .ranks = run->ranks,
                           .group = run->group,
                           .prefetch = run->prefetch,
                           .passes = run->passes,
                           .micro_batch = 1,
                           .sequence = 19,
                           .unit_blocks = run->unit_blocks,
                           .keep_gathered = run->keep_gathered,
                           .reduce_last = !run->reduce_each,
                           .recompute = run->recompute};
}

const small_program *small_programs(size_t *count) {
    static small_program list[32];
    const model_shape gpt2 = small_shape(FAMILY_GPT2, true), llama = small_shape(FAMILY_LLAMA, false);
    const recompute_policy none = RECOMPUTE_NONE, block = RECOMPUTE_BLOCK, attention = RECOMPUTE_ATTENTION;
    const precision_settings fp32 = {.storage = DTYPE_F32};
    const precision_settings bf16 = {.storage = DTYPE_BF16};
    const precision_settings bf16_sent = {DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, false, 0, 0};
    const precision_settings fp16 = {.storage = DTYPE_F16, .loss_scale = 1024, .loss_scale_interval = 2};
    const precision_settings fp16_sent = {.storage = DTYPE_F16, .wire = DTYPE_BF16, .loss_scale = 8};
    const precision_settings fp32_sent = {.wire = DTYPE_BF16};
    const small_program made[] = {
        SMALL_PROGRAM(gpt2, 1, 1, 1, 1, 2, 19, 1, false, false, none),
        SMALL_PROGRAM(gpt2, 4, 4, 1, 3, 1, 19, 1, false, false, none),
        SMALL_PROGRAM(gpt2, 4, 1, 1, 2, 1, 19, 1, false, true, none),
        SMALL_PROGRAM(llama, 1, 1, 0, 3, 2, 19, 1, false, false, none),
        SMALL_PROGRAM(llama, 3, 3, 0, 2, 1, 19, 2, false, false, none),
        SMALL_PROGRAM(llama, 8, 8, 3, 1, 1, 24, 1, false, false, none),
        SMALL_PROGRAM(llama, 2, 1, 1, 1, 4, 7, 1, false, true, none),
        SMALL_PROGRAM(gpt2, 31, 31, 2, 2, 1, 1, 3, false, false, none),
        SMALL_PROGRAM(llama, 4, 4, 1, 2, 1, 19, 1, true, false, none),
        SMALL_PROGRAM(gpt2, 4, 4, 1, 3, 1, 19, 1, true, true, none),
        SMALL_PROGRAM(llama, 6, 3, 1, 2, 1, 19, 1, false, false, none),
        SMALL_PROGRAM(gpt2, 4, 2, 1, 2, 1, 19, 2, false, true, none),
        SMALL_PROGRAM(llama, 4, 4, 1, 2, 1, 19, 1, false, false, block),
        SMALL_PROGRAM(gpt2, 2, 2, 1, 1, 2, 19, 1, false, false, attention),
        SMALL_PROGRAM(gpt2, 1, 1, 1, 1, 2, 19, 1, false, false, block),
        SMALL_PROGRAM_IN(bf16, gpt2, 1, 1, 1, 2, 2, 19, 1, false, false, block),
        SMALL_PROGRAM_IN(fp16, llama, 1, 1, 1, 2, 2, 19, 1, true, false, none),
        SMALL_PROGRAM_IN(bf16, llama, 4, 4, 1, 3, 1, 19, 1, false, false, none),
        SMALL_PROGRAM_IN(bf16_sent, gpt2, 4, 4, 2, 2, 1, 19, 1, false, false, attention),
        SMALL_PROGRAM_IN(bf16_sent, llama, 4, 2, 1, 2, 1, 19, 1, true, true, none),
        SMALL_PROGRAM_IN(fp16_sent, gpt2, 6, 3, 1, 2, 1, 19, 1, false, false, none),
        SMALL_PROGRAM_IN(fp32_sent, llama, 2, 1, 1, 2, 2, 19, 1, false, true, none),
        SMALL_PROGRAM_FUSED(fp32, gpt2, 1, 1, 1, 2, 2, 19, 1, false, true, none),
        SMALL_PROGRAM_FUSED(fp32, gpt2, 4, 4, 1, 2, 1, 19, 1, false, false, none),
        SMALL_PROGRAM_FUSED(bf16, gpt2, 2, 2, 1, 1, 2, 19, 1, false, false, block),
    };
    memcpy(list, made, sizeof made);
    *count = sizeof made / sizeof *made;
    return list;
}

static tensor_id base_of(const program *p, tensor_id t) {
    return p->tensors[t].base == NO_TENSOR ? t : p->tensors[t].base;
}

bool small_program_reads(const program *p, tensor_id t) {
    for (int32_t i = 0; i < p->operation_count; i++)
        for (int k = 0; k < OPERATION_INPUTS; k++)
            if (p->operations[i].in[k] != NO_TENSOR && base_of(p, p->operations[i].in[k]) == base_of(p, t))
                return true;
    return false;
}

typedef struct span {
    int32_t first_write, last_read; /* -1: none */
} span;

static span span_of(const program *p, tensor_id t) {
    span s = {-1, -1};
    for (int32_t i = 0; i < p->operation_count; i++) {
        for (int k = 0; k < OPERATION_INPUTS; k++)
            if (p->operations[i].in[k] != NO_TENSOR && base_of(p, p->operations[i].in[k]) == t)
                s.last_read = i;
        for (int k = 0; k < OPERATION_OUTPUTS; k++)
            if (p->operations[i].out[k] != NO_TENSOR && base_of(p, p->operations[i].out[k]) == t && s.first_write < 0)
                s.first_write = i;
    }
    return s;
}

static bool has_views(const program *p, tensor_id t) {
    for (tensor_id v = 0; v < p->tensor_count; v++)
        if (p->tensors[v].base == t)
            return true;
    return false;
}

tensor_id small_program_alive_beside(const program *p, tensor_id t) {
    const tensor *x = &p->tensors[t];
    const span own = span_of(p, t);
    if (x->base != NO_TENSOR || x->persistent || own.first_write < 0 || own.last_read < 0)
        return NO_TENSOR;
    for (tensor_id other = 0; other < p->tensor_count; other++) {
        const tensor *y = &p->tensors[other];
        if (other == t || has_views(p, other) || y->base != NO_TENSOR || y->persistent || y->bytes < x->bytes ||
            y->address == x->address)
            continue;
        const span its = span_of(p, other);
        if (its.first_write >= 0 && its.first_write < own.first_write && its.last_read > own.last_read)
            return other;
    }
    return NO_TENSOR;
}

void small_program_move(program *p, tensor_id t, int64_t bytes) {
    for (tensor_id v = 0; v < p->tensor_count; v++)
        if (base_of(p, v) == t)
            p->tensors[v].address += bytes;
}
