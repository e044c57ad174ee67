/* What engine/fuse makes of the lists of small models: which operations it merges, what that changes in memory, and
 * that a step computes the same bits, on the reference kernels. That fused lists are safe is shown by the tests of all
 * small programs (support/small_programs.h). */
#include "engine/device/reference/reference.h"
#include "engine/fuse.h"
#include "support/small_programs.h"
#include "support/small_training.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Two passes that add to the same gradients, with blocks whose recomputation is as given. */
static small_program job_of(model_family family, recompute_policy recompute, bool fused) {
    small_program job =
        SMALL_PROGRAM(small_shape(family, family == FAMILY_GPT2), 1, 1, 1, 2, 2, 19, 1, false, true, recompute);
    job.fused = fused;
    return job;
}

static int count_of(const program *p, operation_kind kind, int32_t pass) {
    int count = 0;
    for (int32_t i = 0; i < p->operation_count; i++)
        count += p->operations[i].kind == kind && p->operations[i].pass == pass;
    return count;
}

/* Matmuls that take a gelu and, of these, those that keep what they take it of; matmuls with column sums. */
typedef struct merges {
    int gelus, kept, sums;
} merges;

static merges merges_of(const program *p, int32_t pass, phase when) {
    merges m = {0};
    for (int32_t i = 0; i < p->operation_count; i++) {
        const operation *o = &p->operations[i];
        if (o->kind != OPERATION_MATMUL || o->pass != pass || o->phase != when)
            continue;
        m.gelus += o->attributes.gelu;
        m.kept += o->out[1] != NO_TENSOR;
        m.sums += o->out[2] != NO_TENSOR;
    }
    return m;
}

enum { BIASES = 4 }; /* of a block */

static void every_gelu_and_the_first_bias_gradients_are_merged(void **state) {
    (void)state;
    const small_program job = job_of(FAMILY_GPT2, RECOMPUTE_NONE, true);
    step *s = small_program_build(&job);
    const int layers = (int)job.shape.layers;
    for (int32_t pass = 0; pass < 2; pass++) {
        const merges forward = merges_of(s->program, pass, PHASE_FORWARD);
        const merges backward = merges_of(s->program, pass, PHASE_BACKWARD);
        assert_int_equal(forward.gelus, layers);
        assert_int_equal(forward.kept, layers);
        assert_int_equal(backward.sums, pass == 0 ? BIASES * layers : 0);
        assert_int_equal(count_of(s->program, OPERATION_GELU, pass), 0);
        assert_int_equal(count_of(s->program, OPERATION_COLUMN_SUM, pass), pass == 0 ? 0 : BIASES * layers);
    }
    step_destroy(s);
}

/* Nobody else reads the product in forward, which is then not written; in backward gelu's backward does. */
static void what_is_computed_again_is_kept_only_there(void **state) {
    (void)state;
    const small_program job = job_of(FAMILY_GPT2, RECOMPUTE_BLOCK, true),
                        plain = job_of(FAMILY_GPT2, RECOMPUTE_BLOCK, false);
    step *s = small_program_build(&job), *apart = small_program_build(&plain);
    const int layers = (int)job.shape.layers;
    const merges forward = merges_of(s->program, 0, PHASE_FORWARD), backward = merges_of(s->program, 0, PHASE_BACKWARD);
    assert_int_equal(forward.gelus, layers);
    assert_int_equal(forward.kept, 0);
    assert_int_equal(backward.gelus, layers);
    assert_int_equal(backward.kept, layers);
    assert_int_equal(backward.sums, BIASES * layers);
    assert_true(s->program->live_bytes <= apart->program->live_bytes);
    step_destroy(s);
    step_destroy(apart);
}

static void a_model_without_them_stays_as_it_is(void **state) {
    (void)state;
    const small_program job = job_of(FAMILY_LLAMA, RECOMPUTE_NONE, true),
                        plain = job_of(FAMILY_LLAMA, RECOMPUTE_NONE, false);
    step *s = small_program_build(&job), *apart = small_program_build(&plain);
    assert_int_equal(s->program->operation_count, apart->program->operation_count);
    for (int32_t i = 0; i < s->program->operation_count; i++)
        assert_int_equal(s->program->operations[i].kind, apart->program->operations[i].kind);
    step_destroy(s);
    step_destroy(apart);
}

/* ---- what the device has a say in ---- */

static int asked;

static bool fuses_gelus_of_38_rows(device *d, const launch *l) {
    (void)d;
    asked++;
    assert_true(l->attributes.gelu != (l->out[2].data != NULL));
    return l->attributes.gelu && l->out[0].shape[0] == 38;
}

static void the_device_decides_by_shape(void **state) {
    (void)state;
    const small_program job = job_of(FAMILY_GPT2, RECOMPUTE_NONE, false);
    const device_functions some = {.fuses = fuses_gelus_of_38_rows}, none = {0};
    device d = {.functions = &none};
    step *s = small_program_build(&job);
    const int32_t before = s->program->operation_count, layers = (int32_t)job.shape.layers;
    fuse(s->program, &d);
    assert_int_equal(s->program->operation_count, before);
    d.functions = &some;
    fuse(s->program, &d);
    assert_int_equal(asked, layers * (2 + BIASES));
    assert_int_equal(s->program->operation_count, before - 2 * layers);
    assert_int_equal(count_of(s->program, OPERATION_COLUMN_SUM, 0), BIASES * layers);
    step_destroy(s);
}

/* ---- numbers ---- */

/* Inputs that make sense: tokens inside the vocabulary, sorted, small weights, a rate. */
static void fill(const program *p, const operation *o, char *bytes) {
    const tensor *x = &p->tensors[o->out[0]];
    for (int64_t i = 0; i < x->shape[0]; i++)
        if (x->type == DTYPE_F64)
            ((double *)(void *)(bytes + x->address))[i] = 1e-3;
        else
            ((int32_t *)(void *)(bytes + x->address))[i] = (int32_t)(o->attributes.host == HOST_ORDER ? i : i / 2);
}

static void first_weights(const step *s, char *bytes) {
    for (int32_t u = 0; u < s->units; u++) {
        const tensor *x = &s->program->tensors[s->master[u]];
        for (int64_t i = 0; i < x->bytes / 4; i++)
            ((float *)(void *)(bytes + x->address))[i] = (float)((i * 37 + u) % 23 - 11) * 0.02f;
    }
}

/* The arena after a step, from weights that the unit and the element's number give; freed by the caller. Its persistent
 * part is laid out from the tensors alone, so it is the same of a fused list. */
static char *run_step(const step *s) {
    const program *p = s->program;
    const size_t bytes = ((size_t)p->arena_bytes + 4095) / 4096 * 4096;
    char *arena = aligned_alloc(4096, bytes);
    assert_non_null(arena);
    memset(arena, 0, bytes);
    first_weights(s, arena);
    for (int32_t i = 0; i < p->operation_count; i++) {
        const operation *o = &p->operations[i];
        const launch l = program_launch(p, o, arena);
        if (o->kind == OPERATION_COPY_IN)
            fill(p, o, arena);
        else if (o->kind != OPERATION_COPY_OUT)
            reference_launch_f32(&l);
    }
    return arena;
}

static void a_step_computes_the_same_bits(void **state) {
    (void)state;
    static const recompute_policy policies[] = {RECOMPUTE_NONE, RECOMPUTE_BLOCK, RECOMPUTE_ATTENTION, RECOMPUTE_MEMORY};
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        const small_program fused = job_of(FAMILY_GPT2, policies[i], true),
                            plain = job_of(FAMILY_GPT2, policies[i], false);
        step *s = small_program_build(&fused), *apart = small_program_build(&plain);
        assert_true(s->program->operation_count < apart->program->operation_count);
        assert_int_equal(s->program->persistent_bytes, apart->program->persistent_bytes);
        char *together = run_step(s), *separate = run_step(apart),
             *never = calloc(1, (size_t)s->program->persistent_bytes);
        first_weights(s, never);
        assert_memory_equal(together, separate, (size_t)s->program->persistent_bytes);
        assert_true(memcmp(together, never, (size_t)s->program->persistent_bytes) != 0);
        free(together);
        free(separate);
        free(never);
        step_destroy(s);
        step_destroy(apart);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_gelu_and_the_first_bias_gradients_are_merged),
        cmocka_unit_test(what_is_computed_again_is_kept_only_there),
        cmocka_unit_test(a_model_without_them_stays_as_it_is),
        cmocka_unit_test(the_device_decides_by_shape),
        cmocka_unit_test(a_step_computes_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
