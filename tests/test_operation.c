/* The table of operations: signatures that fit together, and costs counted by hand. */
#include "engine/device/operation.h"
#include "engine/device/reference/reference.h"
#include "support/launches.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>

static void signatures_fit_together(void **state) {
    (void)state;
    for (int kind = 0; kind < OPERATION_KIND_COUNT; kind++) {
        const operation_signature *s = operation_signature_of((operation_kind)kind);
        assert_non_null(s->name);
        for (int other = 0; other < kind; other++)
            assert_string_not_equal(s->name, operation_signature_of((operation_kind)other)->name);
        for (int i = 0; i < OPERATION_INPUTS; i++) {
            bool optional = (s->optional_inputs >> i & 1) != 0;
            assert_true(s->inputs[i] != NULL || !optional);
            assert_true(i == 0 || s->inputs[i] == NULL || s->inputs[i - 1] != NULL); /* no holes */
            assert_true((s->inputs[i] != NULL) == (s->input_types[i] != '\0'));
        }
        for (int o = 0; o < OPERATION_OUTPUTS; o++) {
            uint32_t bits = s->optional_outputs | s->accumulates;
            assert_true(s->outputs[o] != NULL || ((bits >> o & 1) == 0 && s->shares[o] < 0));
            assert_true(s->shares[o] < OPERATION_INPUTS);
            assert_true((s->outputs[o] != NULL) == (s->output_types[o] != '\0'));
            assert_true(s->shares[o] < 0 || s->inputs[s->shares[o]] != NULL);
        }
        assert_true(s->optional_inputs >> OPERATION_INPUTS == 0);
        assert_true((s->optional_outputs | s->accumulates) >> OPERATION_OUTPUTS == 0);
    }
}

/* Costs read shapes only. */
static operand shape_of(dtype type, int64_t rows, int64_t columns) {
    return (operand){(void *)1, type, {rows, columns, 1}};
}

/* Every letter of the table, as a kind that has it takes types and refuses them. */
static void operands_have_the_types_of_their_kind(void **state) {
    (void)state;
    const dtype storages[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++) {
            const operand x = shape_of(storages[a], 3, 3), y = shape_of(storages[b], 3, 3);
            const operand single = shape_of(DTYPE_F32, 3, 3), wide = shape_of(DTYPE_F64, 3, 3);
            const launch mixed = {.kind = OPERATION_MATMUL, .in = {x, y}, .out = {x}};
            assert_int_equal(operation_wrong_type(&mixed), a == b ? -1 : 1);
            const launch gradient = {.kind = OPERATION_MATMUL, .in = {x, x}, .out = {y}};
            assert_int_equal(operation_wrong_type(&gradient), a == b || b == 0 ? -1 : OPERATION_INPUTS);
            const launch cast = {.kind = OPERATION_CAST, .in = {x}, .out = {y}};
            assert_int_equal(operation_wrong_type(&cast), -1);
            const launch widened = {.kind = OPERATION_CAST, .in = {x}, .out = {wide}};
            assert_int_equal(operation_wrong_type(&widened), OPERATION_INPUTS);
            const launch norm = {.kind = OPERATION_NORM, .in = {x, {0}, x}, .out = {x, {0}, y}};
            assert_int_equal(operation_wrong_type(&norm), b == 0 ? -1 : OPERATION_INPUTS + 2);
            const launch scatter = {.kind = OPERATION_REDUCE_SCATTER, .in = {x}, .out = {y}};
            assert_int_equal(operation_wrong_type(&scatter), a == 2 ? 0 : b == 0 ? -1 : OPERATION_INPUTS);
            const launch reduce = {.kind = OPERATION_ALL_REDUCE, .in = {x}, .out = {y}};
            assert_int_equal(operation_wrong_type(&reduce), a == 2 ? 0 : a == b ? -1 : OPERATION_INPUTS);
            const launch update = {.kind = OPERATION_ADAMW, .in = {x}, .out = {single, single, y}};
            assert_int_equal(operation_wrong_type(&update), a != 0 ? 0 : b == 0 ? -1 : OPERATION_INPUTS + 2);
        }
    const launch fill = {.kind = OPERATION_FILL, .out = {shape_of(DTYPE_I32, 3, 3)}};
    assert_int_equal(operation_wrong_type(&fill), OPERATION_INPUTS);
    const launch moved = {.kind = OPERATION_COPY_IN, .out = {shape_of(DTYPE_I32, 3, 3)}};
    assert_int_equal(operation_wrong_type(&moved), -1);
}

static void costs_of_matmul(void **state) {
    (void)state;
    launch l = {.kind = OPERATION_MATMUL, .attributes = {.transpose_a = true}};
    l.in[0] = shape_of(DTYPE_F32, 5, 3), l.in[1] = shape_of(DTYPE_F32, 5, 7), l.out[0] = shape_of(DTYPE_F32, 3, 7);
    assert_true(operation_flops(&l) == 2 * 3 * 5 * 7);
    assert_true(operation_bytes(&l) == 4 * (3 * 5 + 5 * 7 + 3 * 7));
    l.accumulate = 1; /* reads c as well */
    l.in[2] = shape_of(DTYPE_BF16, 7, 1);
    assert_true(operation_flops(&l) == 2 * 3 * 5 * 7 + 3 * 7);
    assert_true(operation_bytes(&l) == 4 * (3 * 5 + 5 * 7 + 2 * 3 * 7) + 2 * 7);
    l.accumulate = 0;
    l.attributes.gelu = true; /* nine for each result, which is written beside what it is taken of */
    l.out[1] = l.out[0];
    assert_true(operation_flops(&l) == 2 * 3 * 5 * 7 + 3 * 7 + 9 * 3 * 7);
    assert_true(operation_bytes(&l) == 4 * (3 * 5 + 5 * 7 + 2 * 3 * 7) + 2 * 7);
    l.attributes.gelu = false;
    l.out[1].data = NULL;
    l.out[2] = shape_of(DTYPE_F32, 7, 1); /* an addition for each of b, which is read once */
    assert_true(operation_flops(&l) == 2 * 3 * 5 * 7 + 3 * 7 + 5 * 7);
    assert_true(operation_bytes(&l) == 4 * (3 * 5 + 5 * 7 + 3 * 7 + 7) + 2 * 7);
}

static void costs_of_attention(void **state) {
    (void)state;
    attributes a = {.sequence = 4, .heads = 2, .kv_heads = 1, .head_width = 8};
    launch l = {.kind = OPERATION_ATTENTION, .attributes = a};
    l.in[0] = shape_of(DTYPE_F32, 12, 32);
    l.out[0] = shape_of(DTYPE_F32, 12, 16), l.out[1] = shape_of(DTYPE_F32, 12, 2);
    assert_true(operation_flops(&l) == 3 * 2 * (4 * 4) * 4 * 8);
    l.attributes.causal = true; /* 1 + 2 + 3 + 4 pairs instead of 16 */
    assert_true(operation_flops(&l) == 3 * 2 * 10 * 4 * 8);
}

static void costs_of_embedding(void **state) {
    (void)state;
    launch l = {.kind = OPERATION_EMBEDDING, .attributes = {.sequence = 6}};
    l.in[0] = shape_of(DTYPE_I32, 6, 1), l.in[1] = shape_of(DTYPE_F32, 1000, 8), l.out[0] = shape_of(DTYPE_F32, 6, 8);
    assert_true(operation_bytes(&l) == 4 * (6 + 2 * 6 * 8)); /* rows of the tokens only */
    assert_true(operation_flops(&l) == 0);
    launch backward = {.kind = OPERATION_EMBEDDING_BACKWARD};
    backward.in[0] = l.out[0], backward.in[1] = l.in[0], backward.in[2] = l.in[0], backward.out[0] = l.in[1];
    assert_true(operation_bytes(&backward) == 4 * (6 * 8 + 2 * 6 + 1000 * 8));
    backward.accumulate = 1;
    assert_true(operation_bytes(&backward) == 4 * (6 * 8 + 2 * 6 + 2 * 6 * 8));
}

/* Adding is overwriting, then a sum: for every kind that may add and whose outputs are all sums. */
static void check_adding(launch *l) {
    launch fresh = launch_clone(l, DTYPE_F64, false), added = launch_clone(l, DTYPE_F64, false);
    added.accumulate = operation_signature_of(l->kind)->accumulates;
    reference_launch(&fresh);
    reference_launch(&added);
    for (int o = 0; o < OPERATION_OUTPUTS; o++)
        for (int64_t i = 0; l->out[o].data != NULL && i < operand_count(&l->out[o]); i++) {
            double before = (added.accumulate >> o & 1) != 0 ? operand_get(&l->out[o], i) : 0;
            assert_true(fabs(operand_get(&added.out[o], i) - before - operand_get(&fresh.out[o], i)) < 1e-14);
        }
    launch_release(&fresh);
    launch_release(&added);
    launch_release(l);
}

static operand values(int64_t rows, int64_t columns, uint64_t stream) {
    return operand_random(DTYPE_F64, rows, columns, 1, stream);
}

static void accumulators_add(void **state) {
    (void)state;
    launch matmul = {.kind = OPERATION_MATMUL, .in = {values(3, 4, 1), values(4, 2, 2)}, .out = {values(3, 2, 3)}};
    check_adding(&matmul);
    launch columns = {.kind = OPERATION_COLUMN_SUM, .in = {values(3, 4, 1)}, .out = {values(4, 1, 2)}};
    check_adding(&columns);
    launch table = {.kind = OPERATION_EMBEDDING_BACKWARD, .in = {values(5, 4, 1)}, .out = {values(6, 4, 2)}};
    table.in[1] = operand_random_integers(5, 6, 3);
    table.in[2] = operand_order(&table.in[1]);
    check_adding(&table);
    launch positions = {.kind = OPERATION_POSITION_BACKWARD, .attributes = {.sequence = 2}, .in = {values(4, 3, 1)}};
    positions.out[0] = values(3, 3, 2);
    check_adding(&positions);
    launch norm = {.kind = OPERATION_NORM_BACKWARD};
    norm.in[0] = values(3, 4, 1), norm.in[2] = values(3, 4, 2);
    norm.in[3] = values(3, 2, 3), norm.in[4] = values(4, 1, 4);
    norm.out[0] = values(3, 4, 5), norm.out[1] = values(4, 1, 6), norm.out[2] = values(4, 1, 7);
    check_adding(&norm);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signatures_fit_together), cmocka_unit_test(operands_have_the_types_of_their_kind),
        cmocka_unit_test(costs_of_matmul),         cmocka_unit_test(costs_of_attention),
        cmocka_unit_test(costs_of_embedding),      cmocka_unit_test(accumulators_add),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
