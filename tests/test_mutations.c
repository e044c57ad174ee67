/* Attacks on programs: every harmful change of a verified program must be found by verify. */
#include "engine/verify.h"
#include "support/small_programs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

typedef struct score {
    int64_t tried, found;
} score;

static bool safe(const program *p) {
    error e = {0};
    return verify(p, &e);
}

/* Counts a mutant that must be found. */
static void expect_found(const program *p, score *s, const char *what, int32_t operation, int detail) {
    s->tried++;
    if (safe(p))
        print_error("missed: %s, operation %d (%s), %d\n", what, operation,
                    operation_signature_of(p->operations[operation].kind)->name, detail);
    else
        s->found++;
}

/* Waits are minimal, so each is needed. On its own stream a collective's wait is for late completion, which is not a
 * matter of bytes. */
static void remove_waits(program *p, score *s) {
    for (int32_t i = 0; i < p->operation_count; i++)
        for (int k = 0; k < STREAM_COUNT; k++) {
            operation *o = &p->operations[i];
            const int32_t kept = o->wait[k];
            if (kept == NO_OPERATION || (int)o->stream == k)
                continue;
            o->wait[k] = NO_OPERATION;
            expect_found(p, s, "wait removed", i, k);
            o->wait[k] = kept;
        }
}

/* Other ranks are not waited for, only the rank's own part of the collective. */
static void remove_releases(program *p, score *s) {
    for (int32_t i = 0; i < p->operation_count; i++)
        for (int k = 0; k < STREAM_COUNT; k++) {
            operation *o = &p->operations[i];
            const operation kept = *o;
            if (o->release[k] == NO_OPERATION)
                continue;
            if (o->wait[k] < o->release[k])
                o->wait[k] = o->release[k];
            o->release[k] = NO_OPERATION;
            expect_found(p, s, "release removed", i, k);
            *o = kept;
        }
}

static void drop_writes(program *p, score *s) {
    for (int32_t i = 0; i < p->operation_count; i++)
        for (int k = 0; k < OPERATION_OUTPUTS; k++) {
            operation *o = &p->operations[i];
            const tensor_id t = o->out[k];
            /* An accumulated or persistent tensor still holds something of its own; what nothing reads harms nobody. */
            if (t == NO_TENSOR || (o->accumulate >> k & 1) || p->tensors[t].persistent || !small_program_reads(p, t))
                continue;
            o->out[k] = NO_TENSOR;
            expect_found(p, s, "write removed", i, k);
            o->out[k] = t;
        }
}

/* A reader moved before its tensor's writer: swap neighbours of one stream that depend on each other. */
static void swap_neighbours(program *p, score *s) {
    for (int32_t i = 0; i + 1 < p->operation_count; i++) {
        operation *a = &p->operations[i], *b = &p->operations[i + 1];
        bool depends = false;
        for (int o = 0; o < OPERATION_OUTPUTS; o++)
            for (int k = 0; k < OPERATION_INPUTS; k++)
                depends |= a->out[o] != NO_TENSOR && a->out[o] == b->in[k] && !(a->accumulate >> o & 1);
        if (!depends || a->stream != b->stream)
            continue;
        const operation kept = *a;
        *a = *b;
        *b = kept;
        expect_found(p, s, "neighbours swapped", i, 0);
        *b = *a;
        *a = kept;
    }
}

/* A tensor moved onto another one that is alive while it is. */
static void overlap_tensors(program *p, score *s) {
    for (tensor_id t = 0; t < p->tensor_count; t++) {
        const tensor_id other = small_program_alive_beside(p, t);
        if (other == NO_TENSOR)
            continue;
        const int64_t moved = p->tensors[other].address - p->tensors[t].address;
        small_program_move(p, t, moved);
        expect_found(p, s, "tensor moved onto another", 0, t);
        small_program_move(p, t, -moved);
    }
}

static void attack(void (*mutate)(program *p, score *s), const char *what) {
    score s = {0};
    size_t count;
    const small_program *list = small_programs(&count);
    for (size_t j = 0; j < count; j++) {
        step *made = small_program_build(&list[j]);
        assert_true(safe(made->program));
        mutate(made->program, &s);
        step_destroy(made);
    }
    print_message("%s: %lld of %lld mutants found\n", what, (long long)s.found, (long long)s.tried);
    assert_true(s.tried > 0);
    assert_int_equal(s.found, s.tried);
}

static void every_wait_removed_is_found(void **state) {
    (void)state;
    attack(remove_waits, "waits removed");
}

static void every_release_removed_is_found(void **state) {
    (void)state;
    attack(remove_releases, "waits for other ranks removed");
}

static void every_write_removed_is_found(void **state) {
    (void)state;
    attack(drop_writes, "writes removed");
}

static void every_order_broken_is_found(void **state) {
    (void)state;
    attack(swap_neighbours, "dependent neighbours swapped");
}

static void every_overlap_is_found(void **state) {
    (void)state;
    attack(overlap_tensors, "tensors moved onto live ones");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_wait_removed_is_found),  cmocka_unit_test(every_release_removed_is_found),
        cmocka_unit_test(every_write_removed_is_found), cmocka_unit_test(every_order_broken_is_found),
        cmocka_unit_test(every_overlap_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
