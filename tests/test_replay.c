/* Plays programs with a hash in the place of every number: what a program computes is then what it read, in which
 * order of accumulation, from which bytes. A program that verify accepts gives one result in every order that its
 * streams and waits allow; one that loses a wait that replays show to be needed must be refused by verify. */
#include "engine/order.h"
#include "engine/verify.h"
#include "support/small_programs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ORDERS = 200, WORD = 4 };

static uint64_t mix(uint64_t a, uint64_t b) {
    uint64_t x = a * UINT64_C(0x9E3779B97F4A7C15) + b + 1;
    x ^= x >> 32;
    x *= UINT64_C(0xD6E8FEB86659FD93);
    return x ^ x >> 29;
}

/* Hash of the words of an operand, but for declared padding, which nothing may use. */
static uint64_t hash_of(const program *p, const uint64_t *words, const bool *unused, tensor_id t) {
    const tensor *x = &p->tensors[t];
    uint64_t h = (uint64_t)x->bytes;
    for (int64_t w = x->address / WORD; w < (x->address + x->bytes) / WORD; w++)
        if (x->role != ROLE_FLAT_GRADIENT || !unused[w])
            h = mix(h, words[w]);
    return h;
}

static void execute(const program *p, int32_t i, uint64_t *words, const bool *unused) {
    const operation *o = &p->operations[i];
    uint64_t h = mix((uint64_t)o->kind, (uint64_t)i);
    for (int k = 0; k < OPERATION_INPUTS; k++)
        if (o->in[k] != NO_TENSOR)
            h = mix(h, hash_of(p, words, unused, o->in[k]));
    for (int k = 0; k < OPERATION_OUTPUTS; k++) {
        if (o->out[k] == NO_TENSOR)
            continue;
        const tensor *x = &p->tensors[o->out[k]];
        for (int64_t w = x->address / WORD; w < (x->address + x->bytes) / WORD; w++)
            words[w] = mix(mix(h, (uint64_t)(w - x->address / WORD)), o->accumulate >> k & 1 ? words[w] : 0);
    }
}

/* Which words of flat gradients are padding, by address: they keep their place while they live. */
static bool *padding_words(const program *p) {
    bool *unused = calloc((size_t)(p->arena_bytes / WORD), sizeof *unused);
    for (int32_t h = 0; h < p->padding_count; h++) {
        const int64_t begin = p->tensors[p->padding[h].tensor].address + p->padding[h].offset;
        for (int64_t w = begin / WORD; w < (begin + p->padding[h].bytes) / WORD; w++)
            unused[w] = true;
    }
    return unused;
}

/* What persistent tensors and the result hold after a step. Seed 0: in the order of the list. */
static uint64_t replay(const program *p, uint64_t seed, const bool *unused) {
    uint64_t *words = calloc((size_t)(p->arena_bytes / WORD), sizeof *words), h = 0;
    int32_t *order = seed == 0 ? NULL : order_pick(p, seed);
    for (int32_t i = 0; i < p->operation_count; i++)
        execute(p, order == NULL ? i : order[i], words, unused);
    for (tensor_id t = 0; t < p->tensor_count; t++)
        if (p->tensors[t].persistent && p->tensors[t].base == NO_TENSOR)
            h = mix(h, hash_of(p, words, unused, t));
    free(order);
    free(words);
    return h;
}

static void every_order_gives_one_result(void **state) {
    (void)state;
    size_t count;
    const small_program *list = small_programs(&count);
    for (size_t j = 1; j < count; j += 4) {
        step *s = small_program_build(&list[j]);
        bool *unused = padding_words(s->program);
        const uint64_t expected = replay(s->program, 0, unused);
        for (uint64_t seed = 1; seed <= ORDERS; seed++)
            if (replay(s->program, seed, unused) != expected)
                fail_msg("program %zu: order %d gives another result", j, (int)seed);
        free(unused);
        step_destroy(s);
    }
}

static bool shown_harmful(const program *p, const bool *unused, uint64_t expected) {
    for (uint64_t seed = 1; seed <= ORDERS; seed++)
        if (replay(p, seed, unused) != expected)
            return true;
    return false;
}

/* Every wait removed, one at a time. */
static void harm_that_replay_shows_is_found(void **state) {
    (void)state;
    size_t count;
    const small_program *list = small_programs(&count);
    int harmful = 0, tried = 0;
    for (size_t j = 1; j < count; j += 5) {
        step *s = small_program_build(&list[j]);
        program *p = s->program;
        bool *unused = padding_words(p);
        const uint64_t expected = replay(p, 0, unused);
        for (int32_t i = 0; i < p->operation_count; i++)
            for (int k = 0; k < STREAM_COUNT; k++) {
                const int32_t kept = p->operations[i].wait[k];
                if (kept == NO_OPERATION)
                    continue;
                error e = {0};
                p->operations[i].wait[k] = NO_OPERATION;
                tried++;
                if (shown_harmful(p, unused, expected)) {
                    harmful++;
                    if (verify(p, &e))
                        fail_msg("program %zu: operation %d must wait for %d, and verify does not say so", j, i, kept);
                }
                p->operations[i].wait[k] = kept;
            }
        free(unused);
        step_destroy(s);
    }
    print_message("%d of %d removed waits change a result in %d orders; verify refuses all of them\n", harmful, tried,
                  ORDERS);
    assert_true(harmful > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_order_gives_one_result),
        cmocka_unit_test(harm_that_replay_shows_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
