/* The oracle of what harms: programs played with hashes (support/replay.h). A program that verify accepts gives one
 * result in every order that its streams and waits allow; whatever change makes it give another must be refused by
 * verify. Changes of every kind, over the programs of the matrix. */
#include "engine/place.h"
#include "engine/rng.h"
#include "engine/verify.h"
#include "engine/waits.h"
#include "support/replay.h"
#include "support/small_programs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A program that is changed and restored. */
typedef struct subject {
    step *made;
    program *p;
    program kept; /* with copies of operations and tensors */
    replay *replay;
    int32_t swapped; /* operation that changed places with the next one; NO_OPERATION */
} subject;

static void *copy_of(const void *items, size_t bytes) {
    return memcpy(malloc(bytes), items, bytes);
}

static subject subject_create(const small_program *job) {
    subject s = {.made = small_program_build(job), .swapped = NO_OPERATION};
    s.p = s.made->program;
    s.kept = *s.p;
    s.kept.operations = copy_of(s.p->operations, (size_t)s.p->operation_count * sizeof *s.p->operations);
    s.kept.tensors = copy_of(s.p->tensors, (size_t)s.p->tensor_count * sizeof *s.p->tensors);
    s.replay = replay_create(s.p);
    return s;
}

static void subject_restore(subject *s) {
    memcpy(s->p->operations, s->kept.operations, (size_t)s->p->operation_count * sizeof *s->p->operations);
    memcpy(s->p->tensors, s->kept.tensors, (size_t)s->p->tensor_count * sizeof *s->p->tensors);
    s->p->arena_bytes = s->kept.arena_bytes;
    if (s->swapped != NO_OPERATION)
        replay_swapped(s->replay, s->swapped);
    s->swapped = NO_OPERATION;
}

static void subject_destroy(subject *s) {
    free(s->kept.operations);
    free(s->kept.tensors);
    replay_destroy(s->replay);
    step_destroy(s->made);
}

/* ---- changes: each draws a victim; false: this one does not suit ---- */

static uint32_t draw(uint64_t number, uint64_t field, int32_t limit) {
    uint32_t words[4];
    rng_words(number, field, 0, words);
    return words[0] % (uint32_t)limit;
}

static operation *any_operation(const program *p, uint64_t number) {
    return &p->operations[draw(number, 0, p->operation_count)];
}

/* A tensor with bytes of its own that comes and goes; NO_TENSOR. */
static tensor_id any_storage(const program *p, uint64_t number, uint64_t field) {
    const tensor_id t = (tensor_id)draw(number, field, p->tensor_count);
    const tensor *x = &p->tensors[t];
    return x->base == NO_TENSOR && !x->persistent && x->address >= 0 ? t : NO_TENSOR;
}

static bool remove_wait(subject *s, uint64_t number) {
    operation *o = any_operation(s->p, number);
    const int k = (int)draw(number, 1, STREAM_COUNT);
    if (o->wait[k] == NO_OPERATION || (int)o->stream == k)
        return false;
    o->wait[k] = NO_OPERATION;
    return true;
}

/* Placed with less than it takes, and declared so. */
static bool shrink(subject *s, uint64_t number) {
    const tensor_id t = any_storage(s->p, number, 0);
    if (t == NO_TENSOR || s->p->tensors[t].bytes <= 2 * PLACE_ALIGNMENT)
        return false;
    s->p->tensors[t].bytes =
        PLACE_ALIGNMENT * (1 + (int64_t)draw(number, 1, (int32_t)(s->p->tensors[t].bytes / PLACE_ALIGNMENT) - 1));
    place(s->p, INT64_MAX);
    waits_derive(s->p);
    return true;
}

/* Placed with less than it takes, which is not told. */
static bool place_too_small(subject *s, uint64_t number) {
    const bool suits = shrink(s, number);
    for (tensor_id t = 0; suits && t < s->p->tensor_count; t++)
        s->p->tensors[t].bytes = s->kept.tensors[t].bytes;
    return suits;
}

/* A kernel writes what its operation only claims to read; the waits are those of the claim. */
static bool read_instead_of_write(subject *s, uint64_t number) {
    operation *o = any_operation(s->p, number);
    const int k = (int)draw(number, 1, OPERATION_OUTPUTS);
    int free_input = 0;
    while (free_input < OPERATION_INPUTS && o->in[free_input] != NO_TENSOR)
        free_input++;
    if (o->out[k] == NO_TENSOR || free_input == OPERATION_INPUTS)
        return false;
    o->in[free_input] = o->out[k];
    o->out[k] = NO_TENSOR;
    waits_derive(s->p);
    return true;
}

static int32_t last_reader(const program *p, tensor_id t) {
    int32_t last = NO_OPERATION;
    for (int32_t i = 0; i < p->operation_count; i++)
        for (int k = 0; k < OPERATION_INPUTS; k++)
            if (p->operations[i].in[k] != NO_TENSOR && program_base(p, p->operations[i].in[k]) == t)
                last = i;
    return last;
}

/* Placed, and its waits derived, as if the last reader did not read it. */
static bool forget_last_reader(subject *s, uint64_t number) {
    const tensor_id t = any_storage(s->p, number, 0);
    const int32_t reader = t == NO_TENSOR ? NO_OPERATION : last_reader(s->p, t);
    if (reader == NO_OPERATION)
        return false;
    operation *o = &s->p->operations[reader];
    for (int k = 0; k < OPERATION_INPUTS; k++)
        if (o->in[k] != NO_TENSOR && program_base(s->p, o->in[k]) == t)
            o->in[k] = NO_TENSOR;
    place(s->p, INT64_MAX);
    waits_derive(s->p);
    memcpy(o->in, s->kept.operations[reader].in, sizeof o->in);
    return true;
}

static bool move_onto_another(subject *s, uint64_t number) {
    const tensor_id t = any_storage(s->p, number, 0), other = any_storage(s->p, number, 1);
    if (t == NO_TENSOR || other == NO_TENSOR || s->p->tensors[t].address == s->p->tensors[other].address ||
        s->p->tensors[other].address + s->p->tensors[t].bytes > s->p->arena_bytes)
        return false;
    small_program_move(s->p, t, s->p->tensors[other].address - s->p->tensors[t].address);
    return true;
}

/* On one stream, or across streams: waits name places in the list, which now hold each other's operation. */
static bool swap_neighbours(subject *s, uint64_t number) {
    const int32_t i = (int32_t)draw(number, 0, s->p->operation_count - 1);
    operation *o = &s->p->operations[i];
    for (int k = 0; k < STREAM_COUNT; k++)
        if (o[1].wait[k] == i || o[1].release[k] == i)
            return false;
    for (int32_t later = i + 2; later < s->p->operation_count; later++)
        for (int k = 0; k < STREAM_COUNT; k++) {
            const operation *x = &s->p->operations[later];
            if (o->stream != o[1].stream && (x->wait[k] == i || x->wait[k] == i + 1))
                return false;
        }
    const operation kept = *o;
    o[0] = o[1];
    o[1] = kept;
    replay_swapped(s->replay, i);
    s->swapped = i;
    return true;
}

/* ---- score ---- */

typedef struct change {
    const char *name;
    bool (*make)(subject *s, uint64_t number);
    bool always; /* harmful or not, verify must refuse it: the waits are minimal, the declaration is wrong */
    int wanted;  /* mutants of a program */
} change;

static const change changes[] = {
    {"wait removed", remove_wait, true, 30},
    {"byte range shrunk", shrink, true, 15},
    {"placed in too few bytes", place_too_small, false, 15},
    {"write marked as a read", read_instead_of_write, true, 30},
    {"last use before the last reader", forget_last_reader, false, 15},
    {"moved onto another tensor", move_onto_another, false, 30},
    {"neighbours swapped", swap_neighbours, false, 30},
};
enum { CHANGES = sizeof changes / sizeof *changes, ATTEMPTS = 40 };

typedef struct score {
    int tried, refused, harmful, missed;
} score;

static bool accepted(const program *p) {
    error e = {0};
    return verify(p, &e);
}

static void judge(const subject *s, const change *c, score *result) {
    const bool accepts = accepted(s->p);
    const bool harmful = replay_differs(s->replay, REPLAY_ORDERS);
    result->tried++;
    result->refused += !accepts;
    result->harmful += harmful;
    if (accepts && (harmful || c->always)) {
        result->missed++;
        print_error("missed: %s\n", c->name);
    }
}

static void attack(subject *s, uint64_t program, score *scores) {
    for (uint64_t c = 0; c < CHANGES; c++)
        for (int attempt = 0, made = 0; attempt < ATTEMPTS * changes[c].wanted && made < changes[c].wanted; attempt++) {
            if (changes[c].make(s, ((program * CHANGES + c) << 32) + (uint64_t)attempt)) {
                judge(s, &changes[c], &scores[c]);
                made++;
            }
            subject_restore(s);
        }
}

static void harm_that_replay_shows_is_found(void **state) {
    (void)state;
    int count, missed = 0;
    const matrix_run *runs = matrix_runs(&count);
    score scores[CHANGES] = {0};
    for (int i = 0; i < count; i++) {
        const small_program job = small_program_of(&runs[i]);
        subject s = subject_create(&job);
        assert_true(accepted(s.p));
        attack(&s, (uint64_t)i, scores);
        subject_destroy(&s);
    }
    print_message("%d programs of the matrix\n", count);
    for (int c = 0; c < CHANGES; c++) {
        const score *r = &scores[c];
        print_message("%-32s %5d mutants, %5d refused, %5d shown to be harmful, of which %.1f %% refused\n",
                      changes[c].name, r->tried, r->refused, r->harmful,
                      r->harmful == 0 ? 100 : 100 * (1 - (double)r->missed / r->harmful));
        assert_true(r->tried >= count && r->harmful > 0);
        missed += r->missed;
    }
    assert_int_equal(missed, 0);
}

static void every_order_gives_one_result(void **state) {
    (void)state;
    size_t count;
    const small_program *list = small_programs(&count);
    for (size_t j = 1; j < count; j += 4) {
        step *s = small_program_build(&list[j]);
        replay *r = replay_create(s->program);
        if (replay_differs(r, REPLAY_ORDERS))
            fail_msg("program %zu: an order gives another result", j);
        replay_destroy(r);
        step_destroy(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_order_gives_one_result),
        cmocka_unit_test(harm_that_replay_shows_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
