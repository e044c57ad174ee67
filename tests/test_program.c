/* The step program as data: what is in it, what waits for what. The checks here share no code with the parts that they
 * check. */
#include "engine/verify.h"
#include "support/small_programs.h"
#include "support/small_training.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- counts ---- */

static int count_of(const program *p, operation_kind kind, phase when, int32_t unit, int32_t pass) {
    int count = 0;
    for (int32_t i = 0; i < p->operation_count; i++) {
        const operation *o = &p->operations[i];
        count += o->kind == kind && o->phase == when && (unit == NO_UNIT || o->unit == unit) && o->pass == pass;
    }
    return count;
}

/* U gathers forward, at most U backward, U reductions, in every pass. */
static void full_sharding_moves_each_unit_once_a_pass(void **state) {
    (void)state;
    for (int family = 0; family < FAMILY_COUNT; family++) {
        const small_program job = SMALL_PROGRAM(small_shape((model_family)family, family == FAMILY_GPT2), 4, 4, 1, 3, 1,
                                                19, 1, false, false, RECOMPUTE_NONE);
        step *s = small_program_build(&job);
        const program *p = s->program;
        for (int32_t pass = 0; pass < job.passes; pass++) {
            for (int32_t unit = 0; unit < s->units; unit++) {
                assert_int_equal(count_of(p, OPERATION_ALL_GATHER, PHASE_FORWARD, unit, pass), 1);
                assert_true(count_of(p, OPERATION_ALL_GATHER, PHASE_BACKWARD, unit, pass) <= 1);
                assert_int_equal(count_of(p, OPERATION_REDUCE_SCATTER, PHASE_BACKWARD, unit, pass), 1);
            }
            assert_true(count_of(p, OPERATION_ALL_GATHER, PHASE_BACKWARD, NO_UNIT, pass) < s->units);
        }
        step_destroy(s);
    }
}

static void one_rank_communicates_nothing(void **state) {
    (void)state;
    const small_program job =
        SMALL_PROGRAM(small_shape(FAMILY_LLAMA, true), 1, 1, 1, 2, 1, 19, 1, false, false, RECOMPUTE_NONE);
    step *s = small_program_build(&job);
    for (int32_t i = 0; i < s->program->operation_count; i++)
        assert_true(s->program->operations[i].kind < OPERATION_ALL_GATHER);
    step_destroy(s);
}

/* ---- accesses, for the checks below ---- */

typedef struct access {
    int32_t operation;
    int64_t begin, end; /* bytes */
    bool writes;
    tensor_id tensor;
} access;

static void add_access(const program *p, access *list, int32_t *count, int32_t operation, tensor_id t, bool writes) {
    if (t == NO_TENSOR)
        return;
    const tensor *x = &p->tensors[t];
    assert_true(x->address >= 0 && x->address + x->bytes <= p->arena_bytes);
    assert_true(x->address % (int64_t)sizeof(float) == 0);
    list[(*count)++] = (access){operation, x->address, x->address + x->bytes, writes, t};
}

static access *accesses_of(const program *p, int32_t *count) {
    access *list = malloc((size_t)p->operation_count * 9 * sizeof *list);
    *count = 0;
    for (int32_t i = 0; i < p->operation_count; i++) {
        const operation *o = &p->operations[i];
        for (int k = 0; k < OPERATION_INPUTS; k++)
            add_access(p, list, count, i, o->in[k], false);
        for (int k = 0; k < OPERATION_OUTPUTS; k++)
            add_access(p, list, count, i, o->out[k], true);
        add_access(p, list, count, i, o->workspace, true);
    }
    return list;
}

/* ---- every read sees what was meant ---- */

static tensor_id base_of(const program *p, tensor_id t) {
    return p->tensors[t].base == NO_TENSOR ? t : p->tensors[t].base;
}

/* Plays the list on an arena that holds, per 4 bytes, the tensor last written there. */
static void reads_see_their_tensor(void **state) {
    (void)state;
    size_t job_count;
    const small_program *list = small_programs(&job_count);
    for (size_t j = 0; j < job_count; j++) {
        step *s = small_program_build(&list[j]);
        const program *p = s->program;
        int32_t count, *owner = malloc((size_t)p->arena_bytes);
        access *all = accesses_of(p, &count);
        for (int64_t w = 0; w < p->arena_bytes / 4; w++)
            owner[w] = NO_TENSOR;
        for (tensor_id t = 0; t < p->tensor_count; t++)
            for (int64_t w = 0; p->tensors[t].persistent && w < p->tensors[t].bytes / 4; w++)
                owner[(p->tensors[t].address + 4 * w) / 4] = base_of(p, t);
        for (int32_t i = 0; i < count; i++) {
            const tensor *x = &p->tensors[all[i].tensor];
            const bool padded = x->role == ROLE_FLAT_GRADIENT || x->role == ROLE_GRADIENT_SHARD;
            for (int64_t w = all[i].begin / 4; w < (all[i].end + 3) / 4; w++) {
                if (!all[i].writes && owner[w] != base_of(p, all[i].tensor) && !padded)
                    fail_msg("operation %d reads %s and finds %s", all[i].operation, x->name,
                             owner[w] == NO_TENSOR ? "nothing" : p->tensors[owner[w]].name);
                if (all[i].writes)
                    owner[w] = base_of(p, all[i].tensor);
            }
        }
        free(all);
        free(owner);
        step_destroy(s);
    }
}

/* ---- waits order all conflicts ---- */

/* before[i][s]: the last operation of stream s that is known to be done when operation i starts. */
static int32_t (*happens_before(const program *p))[STREAM_COUNT] {
    int32_t(*before)[STREAM_COUNT] = malloc((size_t)p->operation_count * sizeof *before);
    int32_t previous[STREAM_COUNT] = {-1, -1, -1, -1};
    for (int32_t i = 0; i < p->operation_count; i++) {
        const operation *o = &p->operations[i];
        for (int s = 0; s < STREAM_COUNT; s++)
            before[i][s] = -1;
        const int32_t sources[] = {previous[o->stream], o->wait[0],    o->wait[1],    o->wait[2],   o->wait[3],
                                   o->release[0],       o->release[1], o->release[2], o->release[3]};
        for (size_t k = 0; k < sizeof sources / sizeof *sources; k++) {
            if (sources[k] < 0)
                continue;
            assert_true(sources[k] < i);
            const int32_t stream = (int32_t)p->operations[sources[k]].stream;
            if (sources[k] > before[i][stream])
                before[i][stream] = sources[k];
            for (int s = 0; s < STREAM_COUNT; s++)
                if (before[sources[k]][s] > before[i][s])
                    before[i][s] = before[sources[k]][s];
        }
        previous[o->stream] = i;
    }
    return before;
}

static int32_t unordered_conflicts(const program *p) {
    int32_t count, conflicts = 0;
    access *all = accesses_of(p, &count);
    int32_t(*before)[STREAM_COUNT] = happens_before(p);
    for (int32_t b = 0; b < count; b++)
        for (int32_t a = 0; a < b; a++) {
            const bool clash = all[a].begin < all[b].end && all[b].begin < all[a].end &&
                               (all[a].writes || all[b].writes) && all[a].operation != all[b].operation;
            const int32_t stream = (int32_t)p->operations[all[a].operation].stream;
            conflicts += clash && before[all[b].operation][stream] < all[a].operation;
        }
    free(before);
    free(all);
    return conflicts;
}

static void waits_order_every_conflict(void **state) {
    (void)state;
    size_t count;
    const small_program *list = small_programs(&count);
    for (size_t j = 0; j < count; j++) {
        step *s = small_program_build(&list[j]);
        assert_int_equal(unordered_conflicts(s->program), 0);
        step_destroy(s);
    }
}

/* Minimal: without any one of its waits, a program has a conflict. */
static void no_wait_is_superfluous(void **state) {
    (void)state;
    size_t count;
    const small_program *list = small_programs(&count);
    for (size_t j = 0; j < 3; j++) {
        step *s = small_program_build(&list[j]);
        for (int32_t i = 0; i < s->program->operation_count; i++)
            for (int stream = 0; stream < STREAM_COUNT; stream++) {
                int32_t *wait = &s->program->operations[i].wait[stream], kept = *wait;
                if (kept == NO_OPERATION || (int)s->program->operations[i].stream == stream)
                    continue; /* what late completion needs is not a conflict between streams */
                *wait = NO_OPERATION;
                if (unordered_conflicts(s->program) == 0)
                    fail_msg("operation %d waits for %d for nothing", i, kept);
                *wait = kept;
            }
        step_destroy(s);
    }
}

/* ---- verify ---- */

static void verify_accepts_every_program(void **state) {
    (void)state;
    size_t count;
    const small_program *list = small_programs(&count);
    for (size_t j = 0; j < count; j++) {
        step *s = small_program_build(&list[j]);
        error e = {0};
        if (!verify(s->program, &e))
            fail_msg("program %zu: %s", j, e.message);
        step_destroy(s);
    }
}

/* ---- operands fit ---- */

/* Kinds that take any shape, and operands whose last size is free. */
static bool any_shape_fits(const operation *o, int place) {
    return o->kind == OPERATION_FILL || o->kind == OPERATION_COPY_IN || o->kind == OPERATION_COPY_OUT ||
           ((o->kind == OPERATION_STEP_RESULT || o->kind == OPERATION_SUM) && place == 0);
}

/* With an operand that has twice the columns and one more; the tensor `other` is at hand for it. */
static void check_refused(program *p, const operation *given, int place, tensor_id other) {
    operation o = *given;
    tensor_id *id = place < OPERATION_INPUTS ? &o.in[place] : &o.out[place - OPERATION_INPUTS];
    if (*id == NO_TENSOR || any_shape_fits(&o, place))
        return;
    int last = OPERAND_DIMENSIONS - 1;
    while (last > 0 && p->tensors[*id].shape[last] == 1)
        last--;
    p->tensors[other].type = p->tensors[*id].type;
    memcpy(p->tensors[other].shape, p->tensors[*id].shape, sizeof p->tensors[other].shape);
    p->tensors[other].shape[last] = 2 * p->tensors[other].shape[last] + 1;
    *id = other;
    if (program_accepts(p, &o, &(error){0}))
        fail_msg("%s accepts operand %d of another shape", operation_signature_of(o.kind)->name, place);
}

static void operands_that_do_not_fit_are_refused(void **state) {
    (void)state;
    size_t count;
    const small_program *list = small_programs(&count);
    for (size_t j = 0; j < count; j++) {
        step *s = small_program_build(&list[j]);
        program *p = s->program;
        const tensor_id other = program_tensor(p, "other", ROLE_ACTIVATION, DTYPE_F32, 1, (int64_t[]){1});
        for (int32_t i = 0; i < p->operation_count; i++)
            for (int place = 0; place < OPERATION_INPUTS + OPERATION_OUTPUTS; place++)
                check_refused(p, &p->operations[i], place, other);
        step_destroy(s);
    }
}

static void a_wrong_shape_is_named(void **state) {
    (void)state;
    program *p = program_create(0, NULL);
    operation o = operation_make(OPERATION_MATMUL, PHASE_FORWARD, NO_UNIT);
    o.in[0] = program_tensor(p, "x", ROLE_ACTIVATION, DTYPE_F32, 2, (int64_t[]){4, 8});
    o.in[1] = program_tensor(p, "w", ROLE_PARAMETER, DTYPE_F32, 2, (int64_t[]){6, 8});
    o.out[0] = program_tensor(p, "y", ROLE_ACTIVATION, DTYPE_F32, 2, (int64_t[]){4, 6});
    error e = {0};
    assert_false(program_accepts(p, &o, &e));
    assert_int_equal(e.code, EXIT_INTERNAL);
    assert_string_equal(e.message, "matmul: w as its operand b is 6 x 8 x 1, expected 8 x 8 x 1 (0: any)");
    o.attributes.transpose_b = true;
    assert_true(program_accepts(p, &o, &(error){0}));
    program_destroy(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_sharding_moves_each_unit_once_a_pass),
        cmocka_unit_test(one_rank_communicates_nothing),
        cmocka_unit_test(reads_see_their_tensor),
        cmocka_unit_test(waits_order_every_conflict),
        cmocka_unit_test(no_wait_is_superfluous),
        cmocka_unit_test(verify_accepts_every_program),
        cmocka_unit_test(operands_that_do_not_fit_are_refused),
        cmocka_unit_test(a_wrong_shape_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
