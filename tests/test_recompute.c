/* Which activations each policy keeps, and in which order recompute = memory drops them. */
#include "engine/recompute.h"
#include "support/small_programs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { LAYERS = 3 };

static const precision_settings fp32 = {.storage = DTYPE_F32};

static program *forward_of(model_family family, int64_t width, int64_t sequence) {
    const model_shape shape = {.family = family,
                               .layers = LAYERS,
                               .width = width,
                               .heads = 2,
                               .kv_heads = 2,
                               .head_width = width / 2,
                               .feed_forward = 4 * width,
                               .vocabulary = 64,
                               .context = sequence,
                               .norm_epsilon = 1e-5,
                               .rope_theta = 10000,
                               .initialisation = 0.02};
    model *m = model_create(&shape, 1);
    program *forward = model_forward(m, 1, sequence, HEAD_LOSS, &fp32);
    model_destroy(m);
    return forward;
}

/* Bytes of what is kept, of blocks. */
static int64_t kept_bytes(const program *forward, const bool *keep) {
    int64_t bytes = 0;
    for (tensor_id t = 0; t < forward->tensor_count; t++)
        if (keep[t] && forward->tensors[t].role == ROLE_ACTIVATION && forward->tensors[t].block >= 0)
            bytes += forward->tensors[t].bytes;
    return bytes;
}

static void levels_go_from_none_to_block_and_never_take_back(void **state) {
    (void)state;
    for (int family = FAMILY_GPT2; family <= FAMILY_LLAMA; family++) {
        program *forward = forward_of((model_family)family, 32, 24);
        const size_t tensors = (size_t)forward->tensor_count;
        bool *before = recompute_keep(forward, RECOMPUTE_NONE, 0);
        int64_t steps = 0;
        for (int32_t level = 0; level <= recompute_levels(forward); level++) {
            bool *keep = recompute_keep(forward, RECOMPUTE_MEMORY, level);
            for (size_t t = 0; t < tensors; t++)
                assert_true(before[t] || !keep[t]);
            steps += kept_bytes(forward, keep) < kept_bytes(forward, before);
            if (level == 0)
                assert_memory_equal(keep, before, tensors);
            free(before);
            before = keep;
        }
        assert_true(steps >= 3 * LAYERS); /* at least three classes in every block */
        bool *block = recompute_keep(forward, RECOMPUTE_BLOCK, 0);
        assert_memory_equal(before, block, tensors);
        free(block);
        free(before);
        program_destroy(forward);
    }
}

/* What a block starts from, and what lies outside of blocks, is what recomputation begins with. */
static void entries_and_what_is_outside_of_blocks_are_kept(void **state) {
    (void)state;
    program *forward = forward_of(FAMILY_LLAMA, 32, 24);
    for (int policy = RECOMPUTE_NONE; policy <= RECOMPUTE_MEMORY; policy++) {
        bool *keep = recompute_keep(forward, (recompute_policy)policy, recompute_levels(forward));
        for (tensor_id t = 0; t < forward->tensor_count; t++) {
            const tensor *x = &forward->tensors[t];
            if (x->role != ROLE_ACTIVATION || x->part == PART_OTHER || x->part == PART_ENTRY)
                assert_true(keep[t]);
            else if (policy == RECOMPUTE_ATTENTION)
                assert_int_equal(keep[t], x->part != PART_ATTENTION);
            else if (policy == RECOMPUTE_BLOCK)
                assert_false(keep[t]);
        }
        free(keep);
    }
    program_destroy(forward);
}

/* The lowest level at which the first output of block 0's only operation of the kind is dropped. */
static int32_t level_that_drops(const program *forward, operation_kind kind) {
    for (int32_t level = 1; level <= recompute_levels(forward); level++) {
        bool *keep = recompute_keep(forward, RECOMPUTE_MEMORY, level);
        bool gone = false;
        for (int32_t i = 0; i < forward->operation_count; i++) {
            const operation *o = &forward->operations[i];
            gone |= o->kind == kind && forward->tensors[o->out[0]].block == 0 && !keep[o->out[0]];
        }
        free(keep);
        if (gone)
            return level;
    }
    fail_msg("%s is never dropped", operation_signature_of(kind)->name);
    return 0;
}

/* Written again for a byte: an activation function costs a few bytes' time, a matmul 2 x its inner size / 4 operations,
 * attention 4 x (sequence / 2) / 4 of them, which passes the matmul's when the sequence is long. */
static void the_cheapest_for_its_bytes_goes_first(void **state) {
    (void)state;
    const struct {
        int64_t width, sequence;
        bool attention_first;
    } cases[] = {{1024, 64, true}, {128, 8192, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        program *forward = forward_of(FAMILY_GPT2, cases[i].width, cases[i].sequence);
        const int32_t gelu = level_that_drops(forward, OPERATION_GELU);
        const int32_t attention = level_that_drops(forward, OPERATION_ATTENTION);
        const int32_t matmul = level_that_drops(forward, OPERATION_MATMUL);
        assert_int_equal(gelu % LAYERS, 1); /* class by class, block 0 first */
        assert_true(gelu < attention && gelu < matmul);
        assert_int_equal(attention < matmul, cases[i].attention_first);
        program_destroy(forward);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_go_from_none_to_block_and_never_take_back),
        cmocka_unit_test(entries_and_what_is_outside_of_blocks_are_kept),
        cmocka_unit_test(the_cheapest_for_its_bytes_goes_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
