/* A declared access is the access made: every operation of a step runs a second time in an arena that holds only its
 * declared inputs, all other bytes being signalling NaNs. It must give the same outputs and change nothing else. The
 * CPU's kernels run, and of what is fused, which they do not know, the reference kernels. */
#include "engine/device/reference/reference.h"
#include "engine/run.h"
#include "support/small_programs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint32_t SIGNALLING_NAN = 0x7fa00001u;

typedef struct arena {
    char *bytes, *before, *alone; /* the step's; its state before the operation; the second run's */
    int64_t size;
} arena;

static char *new_bytes(int64_t size) {
    char *bytes = aligned_alloc(4096, (size_t)((size + 4095) / 4096 * 4096));
    assert_non_null(bytes);
    return bytes;
}

static void fill_with_nan(char *bytes, int64_t size) {
    for (int64_t i = 0; i + 4 <= size; i += 4)
        memcpy(bytes + i, &SIGNALLING_NAN, 4);
}

static void copy_tensor(const program *p, tensor_id t, const char *from, char *to) {
    if (t == NO_TENSOR)
        return;
    const tensor *x = &p->tensors[t];
    memcpy(to + x->address, from + x->address, (size_t)x->bytes);
}

/* On the device, or without one by reference kernels. */
static void execute(device *d, const operation *o, const launch *l) {
    if (d == NULL) {
        reference_launch_f32(l);
        return;
    }
    d->functions->launch(d, (int)o->stream, l);
    assert_true(d->functions->synchronize(d, &(error){0}));
}

/* The second run, and the comparison. What is neither output nor workspace must be as it was put there. */
static void run_alone(const program *p, device *d, const operation *o, arena *a) {
    fill_with_nan(a->alone, a->size);
    for (int k = 0; k < OPERATION_INPUTS; k++)
        copy_tensor(p, o->in[k], a->before, a->alone);
    for (int k = 0; k < OPERATION_OUTPUTS; k++)
        if (o->accumulate >> k & 1)
            copy_tensor(p, o->out[k], a->before, a->alone);
    memcpy(a->before, a->alone, (size_t)a->size);
    launch l = program_launch(p, o, a->alone);
    execute(d, o, &l);
    for (int k = 0; k < OPERATION_OUTPUTS; k++) {
        if (o->out[k] == NO_TENSOR)
            continue;
        const tensor *x = &p->tensors[o->out[k]];
        if (memcmp(a->alone + x->address, a->bytes + x->address, (size_t)x->bytes) != 0)
            fail_msg("%s reads more than its inputs: %s differs", operation_signature_of(o->kind)->name, x->name);
        memcpy(a->before + x->address, a->alone + x->address, (size_t)x->bytes);
    }
    copy_tensor(p, o->workspace, a->alone, a->before);
    if (memcmp(a->alone, a->before, (size_t)a->size) != 0)
        fail_msg("%s writes more than its outputs", operation_signature_of(o->kind)->name);
}

static bool moves_between_host_or_ranks(operation_kind kind) {
    return kind == OPERATION_COPY_IN || kind == OPERATION_COPY_OUT || kind == OPERATION_ALL_GATHER ||
           kind == OPERATION_REDUCE_SCATTER || kind == OPERATION_ALL_REDUCE;
}

/* Inputs that make sense: tokens inside the vocabulary, sorted order, small weights, a rate. */
static void copy_in(const program *p, const operation *o, char *bytes) {
    const tensor *x = &p->tensors[o->out[0]];
    for (int64_t i = 0; i < x->shape[0]; i++) {
        if (x->type == DTYPE_F64)
            ((double *)(void *)(bytes + x->address))[i] = 1e-3;
        else /* a sorted run of tokens is its own order's order */
            ((int32_t *)(void *)(bytes + x->address))[i] =
                o->attributes.host == HOST_ORDER ? (int32_t)i : (int32_t)(i / 2);
    }
}

static void first_values(const program *p, char *bytes) {
    for (tensor_id t = 0; t < p->tensor_count; t++) {
        const tensor *x = &p->tensors[t];
        if (!x->persistent || x->base != NO_TENSOR)
            continue;
        memset(bytes + x->address, 0, (size_t)x->bytes);
        for (int64_t i = 0; x->type == DTYPE_F32 && x->role != ROLE_MOMENT && i < x->bytes / 4; i++)
            ((float *)(void *)(bytes + x->address))[i] = (float)((i * 37 + t) % 23 - 11) * 0.02f;
    }
}

static void check_program(const small_program *which) {
    const device_settings settings = {.threads = 1}; /* as the programs were planned */
    error e = {0};
    device *d = NULL;
    step *s = small_program_build(which);
    const program *p = s->program;
    assert_true(device_cpu.open(&settings, &d, &e));
    arena a = {.size = p->arena_bytes};
    a.bytes = new_bytes(a.size);
    a.before = new_bytes(a.size);
    a.alone = new_bytes(a.size);
    fill_with_nan(a.bytes, a.size);
    first_values(p, a.bytes);
    if (s->loss_scale != NO_TENSOR)
        *(double *)(void *)(a.bytes + p->tensors[s->loss_scale].address) = which->precision.loss_scale;
    for (int32_t i = 0; i < p->operation_count; i++) {
        const operation *o = &p->operations[i];
        if (o->kind == OPERATION_COPY_IN)
            copy_in(p, o, a.bytes);
        if (moves_between_host_or_ranks(o->kind))
            continue;
        memcpy(a.before, a.bytes, (size_t)a.size);
        launch l = program_launch(p, o, a.bytes);
        device *on = which->fused ? NULL : d;
        execute(on, o, &l);
        run_alone(p, on, o, &a);
    }
    free(a.bytes);
    free(a.before);
    free(a.alone);
    d->functions->close(d);
    step_destroy(s);
}

/* One rank has every computing operation, and no gaps that other ranks would fill. */
static void every_operation_keeps_to_its_operands(void **state) {
    (void)state;
    size_t count, checked = 0;
    const small_program *list = small_programs(&count);
    for (size_t j = 0; j < count; j++)
        if (list[j].ranks == 1) {
            check_program(&list[j]);
            checked++;
        }
    assert_true(checked >= 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_operation_keeps_to_its_operands)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
