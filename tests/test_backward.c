/* Every backward rule against finite differences of the forward reference kernel, in double.
 *
 * The objective is the dot product of the forward outputs with fixed random weights, which the backward operation gets
 * as the gradients of those outputs. A central difference with step h is wrong by about h^2 |f'''| + 1e-16 |f| / h:
 * 1e-9 here. */
#include "engine/device/reference/reference.h"
#include "support/launches.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>

static const double step = 2e-5, tolerance = 1e-8;

static operand values(int64_t rows, int64_t columns, uint64_t stream) {
    return operand_random(DTYPE_F64, rows, columns, 1.5, stream);
}

static operand empty(int64_t rows, int64_t columns) {
    return operand_make(DTYPE_F64, rows, columns);
}

/* An output gets a weight of its own shape, or NULL when it does not count. */
static double objective(const launch *forward, const operand *const weights[OPERATION_OUTPUTS]) {
    reference_launch(forward);
    double total = 0;
    for (int o = 0; o < OPERATION_OUTPUTS; o++)
        if (weights[o] != NULL)
            total += operand_dot(&forward->out[o], weights[o]);
    return total;
}

static void check_gradient(const char *what, launch *forward, int input,
                           const operand *const weights[OPERATION_OUTPUTS], const operand *gradient) {
    operand *x = &forward->in[input];
    assert_int_equal(operand_count(x), operand_count(gradient));
    for (int64_t i = 0; i < operand_count(x); i++) {
        double kept = operand_get(x, i);
        operand_set(x, i, kept + step);
        double above = objective(forward, weights);
        operand_set(x, i, kept - step);
        double below = objective(forward, weights);
        operand_set(x, i, kept);
        double numeric = (above - below) / (2 * step), exact = operand_get(gradient, i);
        if (!(fabs(numeric - exact) <= tolerance * (1 + fabs(exact))))
            fail_msg("%s, gradient of %s[%lld]: %.12g, by differences %.12g", what,
                     operation_signature_of(forward->kind)->inputs[input], (long long)i, exact, numeric);
    }
    objective(forward, weights); /* leaves the outputs of the unchanged input */
}

static void norm_case(norm_type type, bool residual, bool with_bias, bool with_dsum) {
    enum { ROWS = 3, WIDTH = 7 };
    attributes a = {.norm = type, .epsilon = 1e-2};
    launch forward = {.kind = OPERATION_NORM, .attributes = a};
    forward.in[0] = values(ROWS, WIDTH, 1);
    if (residual) {
        forward.in[1] = values(ROWS, WIDTH, 2);
        forward.out[1] = empty(ROWS, WIDTH);
    }
    forward.in[2] = values(WIDTH, 1, 3);
    if (with_bias)
        forward.in[3] = values(WIDTH, 1, 4);
    forward.out[0] = empty(ROWS, WIDTH);
    forward.out[2] = empty(ROWS, 2);
    operand dnormed = values(ROWS, WIDTH, 5), dsum = values(ROWS, WIDTH, 6);
    const operand *weights[OPERATION_OUTPUTS] = {&dnormed, residual && with_dsum ? &dsum : NULL};
    objective(&forward, weights);

    launch backward = {.kind = OPERATION_NORM_BACKWARD, .attributes = a};
    backward.in[0] = dnormed;
    if (with_dsum)
        backward.in[1] = dsum;
    backward.in[2] = forward.out[1].data != NULL ? forward.out[1] : forward.in[0];
    backward.in[3] = forward.out[2];
    backward.in[4] = forward.in[2];
    backward.out[0] = empty(ROWS, WIDTH);
    backward.out[1] = empty(WIDTH, 1);
    if (with_bias)
        backward.out[2] = empty(WIDTH, 1);
    reference_launch(&backward);
    if (with_dsum && !residual) /* the sum is x itself: what comes in beside the norm's own gradient is added */
        for (int64_t i = 0; i < ROWS * WIDTH; i++)
            operand_set(&backward.out[0], i, operand_get(&backward.out[0], i) - operand_get(&dsum, i));

    const char *what = type == NORM_LAYER ? "layer norm" : "rms norm";
    check_gradient(what, &forward, 0, weights, &backward.out[0]);
    if (residual)
        check_gradient(what, &forward, 1, weights, &backward.out[0]);
    check_gradient(what, &forward, 2, weights, &backward.out[1]);
    if (with_bias)
        check_gradient(what, &forward, 3, weights, &backward.out[2]);
    for (int o = 0; o < OPERATION_OUTPUTS; o++)
        operand_release(&backward.out[o]);
    operand_release(&dnormed);
    operand_release(&dsum);
    launch_release(&forward);
}

static void norms(void **state) {
    (void)state;
    for (int type = NORM_LAYER; type <= NORM_RMS; type++)
        for (int options = 0; options < 8; options++)
            norm_case((norm_type)type, (options & 1) != 0, (options & 2) != 0, (options & 4) != 0);
}

/* The gradient of a stored operand is a matmul of the other operand and dc, in the order that gives its stored form. */
static launch matmul_gradient(const launch *forward, int input, const operand *dc) {
    bool transpose_a = forward->attributes.transpose_a, transpose_b = forward->attributes.transpose_b;
    launch l = {.kind = OPERATION_MATMUL};
    if (input == 0 && !transpose_a) { /* dc op(b)^T */
        l.in[0] = *dc, l.in[1] = forward->in[1];
        l.attributes.transpose_b = !transpose_b;
    } else if (input == 0) { /* op(b) dc^T */
        l.in[0] = forward->in[1], l.in[1] = *dc;
        l.attributes.transpose_a = transpose_b, l.attributes.transpose_b = true;
    } else if (!transpose_b) { /* op(a)^T dc */
        l.in[0] = forward->in[0], l.in[1] = *dc;
        l.attributes.transpose_a = !transpose_a;
    } else { /* dc^T op(a) */
        l.in[0] = *dc, l.in[1] = forward->in[0];
        l.attributes.transpose_a = true, l.attributes.transpose_b = transpose_a;
    }
    l.out[0] = empty(forward->in[input].shape[0], forward->in[input].shape[1]);
    reference_launch(&l);
    return l;
}

static void matmuls_and_bias(void **state) {
    (void)state;
    enum { M = 4, N = 5, K = 3 };
    for (int transposes = 0; transposes < 4; transposes++) {
        bool a = (transposes & 1) != 0, b = (transposes & 2) != 0;
        launch forward = {.kind = OPERATION_MATMUL, .attributes = {.transpose_a = a, .transpose_b = b}};
        forward.in[0] = a ? values(K, M, 1) : values(M, K, 1);
        forward.in[1] = b ? values(N, K, 2) : values(K, N, 2);
        forward.in[2] = values(N, 1, 3);
        forward.out[0] = empty(M, N);
        operand dc = values(M, N, 4);
        const operand *weights[OPERATION_OUTPUTS] = {&dc};
        for (int input = 0; input < 2; input++) {
            launch gradient = matmul_gradient(&forward, input, &dc);
            check_gradient("matmul", &forward, input, weights, &gradient.out[0]);
            operand_release(&gradient.out[0]);
        }
        launch bias = {.kind = OPERATION_COLUMN_SUM, .in = {dc}, .out = {empty(N, 1)}};
        reference_launch(&bias);
        check_gradient("column_sum", &forward, 2, weights, &bias.out[0]);
        launch_release(&bias); /* releases dc */
        launch_release(&forward);
    }
}

/* A matmul that takes a gelu: gelu_backward reads what it kept, and its gradients are those of the product; the bias's
 * comes with the weight's. */
static void matmul_with_gelu(void **state) {
    (void)state;
    enum { M = 4, N = 5, K = 3 };
    launch forward = {.kind = OPERATION_MATMUL, .attributes = {.gelu = true}};
    forward.in[0] = values(M, K, 1), forward.in[1] = values(K, N, 2), forward.in[2] = values(N, 1, 3);
    forward.out[0] = empty(M, N), forward.out[1] = empty(M, N);
    operand dout = values(M, N, 4);
    const operand *weights[OPERATION_OUTPUTS] = {&dout};
    objective(&forward, weights);
    launch gelu = {.kind = OPERATION_GELU_BACKWARD, .in = {dout, forward.out[1]}, .out = {empty(M, N)}};
    reference_launch(&gelu);
    launch input = matmul_gradient(&forward, 0, &gelu.out[0]);
    check_gradient("matmul with gelu", &forward, 0, weights, &input.out[0]);
    launch weight = {.kind = OPERATION_MATMUL, .attributes = {.transpose_a = true}};
    weight.in[0] = forward.in[0], weight.in[1] = gelu.out[0];
    weight.out[0] = empty(K, N), weight.out[2] = empty(N, 1);
    reference_launch(&weight);
    check_gradient("matmul with gelu", &forward, 1, weights, &weight.out[0]);
    check_gradient("matmul with gelu", &forward, 2, weights, &weight.out[2]);
    operand_release(&dout);
    operand_release(&gelu.out[0]);
    operand_release(&input.out[0]);
    operand_release(&weight.out[0]);
    operand_release(&weight.out[2]);
    launch_release(&forward);
}

static void rope_is_undone_by_its_inverse(void **state) {
    (void)state;
    enum { SEQUENCE = 3, ROWS = 6, HEADS = 2, KV_HEADS = 1, HEAD_WIDTH = 6 };
    enum { WIDTH = (HEADS + 2 * KV_HEADS) * HEAD_WIDTH };
    attributes a = {.sequence = SEQUENCE, .heads = HEADS, .kv_heads = KV_HEADS, .head_width = HEAD_WIDTH};
    launch forward = {.kind = OPERATION_ROPE, .attributes = a};
    forward.in[0] = values(ROWS, WIDTH, 1);
    forward.in[1] = empty(SEQUENCE, HEAD_WIDTH / 2);
    forward.in[2] = empty(SEQUENCE, HEAD_WIDTH / 2);
    for (int64_t i = 0; i < SEQUENCE * HEAD_WIDTH / 2; i++) {
        operand_set(&forward.in[1], i, cos(0.3 * (double)i));
        operand_set(&forward.in[2], i, sin(0.3 * (double)i));
    }
    forward.out[0] = empty(ROWS, WIDTH);
    operand dout = values(ROWS, WIDTH, 2);
    const operand *weights[OPERATION_OUTPUTS] = {&dout};
    launch backward = forward;
    backward.attributes.inverse = true;
    backward.in[0] = dout;
    backward.out[0] = empty(ROWS, WIDTH);
    reference_launch(&backward);
    check_gradient("rope", &forward, 0, weights, &backward.out[0]);

    launch undo = backward;
    undo.in[0] = forward.out[0];
    reference_launch(&undo);
    for (int64_t i = 0; i < ROWS * WIDTH; i++)
        assert_true(fabs(operand_get(&undo.out[0], i) - operand_get(&forward.in[0], i)) < 1e-14);
    operand_release(&backward.out[0]);
    operand_release(&dout);
    launch_release(&forward);
}

static void attention_case(int64_t heads, int64_t kv_heads, int64_t head_width, bool causal) {
    enum { SEQUENCE = 5, ROWS = 10 };
    int64_t width = (heads + 2 * kv_heads) * head_width;
    attributes a = {.sequence = SEQUENCE,
                    .heads = heads,
                    .kv_heads = kv_heads,
                    .head_width = head_width,
                    .causal = causal,
                    .scale = 0.7};
    launch forward = {.kind = OPERATION_ATTENTION, .attributes = a};
    forward.in[0] = values(ROWS, width, 1);
    forward.out[0] = empty(ROWS, heads * head_width);
    forward.out[1] = empty(ROWS, heads);
    operand dout = values(ROWS, heads * head_width, 2);
    const operand *weights[OPERATION_OUTPUTS] = {&dout};
    objective(&forward, weights);
    launch backward = {.kind = OPERATION_ATTENTION_BACKWARD, .attributes = a};
    backward.in[0] = dout, backward.in[1] = forward.in[0];
    backward.in[2] = forward.out[0], backward.in[3] = forward.out[1];
    backward.out[0] = empty(ROWS, width);
    reference_launch(&backward);
    check_gradient(causal ? "causal attention" : "full attention", &forward, 0, weights, &backward.out[0]);
    operand_release(&backward.out[0]);
    operand_release(&dout);
    launch_release(&forward);
}

static void attention(void **state) {
    (void)state;
    for (int causal = 0; causal < 2; causal++) {
        attention_case(1, 1, 4, causal != 0);
        attention_case(3, 3, 2, causal != 0);
        attention_case(4, 2, 3, causal != 0);
        attention_case(3, 1, 1, causal != 0);
    }
}

/* A forward operation of one input and a backward one of (dout, the same input). */
static void activation_case(operation_kind forward_kind, operation_kind backward_kind, int64_t in_width) {
    enum { ROWS = 4, WIDTH = 6 };
    launch forward = {.kind = forward_kind, .in = {operand_random(DTYPE_F64, ROWS, in_width * WIDTH, 4, 1)}};
    forward.out[0] = empty(ROWS, WIDTH);
    operand dout = values(ROWS, WIDTH, 2);
    const operand *weights[OPERATION_OUTPUTS] = {&dout};
    launch backward = {.kind = backward_kind, .in = {dout, forward.in[0]}, .out = {empty(ROWS, in_width * WIDTH)}};
    reference_launch(&backward);
    check_gradient("activation", &forward, 0, weights, &backward.out[0]);
    operand_release(&backward.out[0]);
    operand_release(&dout);
    launch_release(&forward);
}

static void activations(void **state) {
    (void)state;
    activation_case(OPERATION_GELU, OPERATION_GELU_BACKWARD, 1);
    activation_case(OPERATION_SWIGLU, OPERATION_SWIGLU_BACKWARD, 2);
}

static void cross_entropy(void **state) {
    (void)state;
    enum { ROWS = 4, VOCABULARY = 9 };
    const double scalars[SCALAR_COUNT] = {[SCALAR_GRADIENT_SCALE] = 0.25};
    launch l = {.kind = OPERATION_CROSS_ENTROPY};
    l.in[0] = values(ROWS, VOCABULARY, 1);
    l.in[1] = operand_random_integers(ROWS, VOCABULARY, 2);
    operand_set(&l.in[1], 2, -1); /* a token that does not count */
    l.in[2] = operand_of_doubles(scalars, SCALAR_COUNT);
    l.out[0] = empty(ROWS, 1);
    l.out[1] = empty(ROWS, VOCABULARY);
    reference_launch(&l);
    operand gradient = l.out[1], scales = empty(ROWS, 1);
    l.out[1].data = NULL;
    for (int64_t i = 0; i < ROWS; i++)
        operand_set(&scales, i, scalars[SCALAR_GRADIENT_SCALE]);
    const operand *weights[OPERATION_OUTPUTS] = {&scales};
    check_gradient("cross_entropy", &l, 0, weights, &gradient);
    operand_release(&gradient);
    operand_release(&scales);
    launch_release(&l);
}

static void embedding_and_positions(void **state) {
    (void)state;
    enum { SEQUENCE = 3, ROWS = 9, VOCABULARY = 7, POSITIONS = 5, WIDTH = 4 };
    attributes a = {.sequence = SEQUENCE};
    launch forward = {.kind = OPERATION_EMBEDDING, .attributes = a};
    forward.in[0] = operand_random_integers(ROWS, VOCABULARY - 2, 1); /* the last tokens never occur */
    forward.in[1] = values(VOCABULARY, WIDTH, 2);
    forward.in[2] = values(POSITIONS, WIDTH, 3);
    forward.out[0] = empty(ROWS, WIDTH);
    operand dout = values(ROWS, WIDTH, 4), order = operand_order(&forward.in[0]);
    const operand *weights[OPERATION_OUTPUTS] = {&dout};
    launch table = {.kind = OPERATION_EMBEDDING_BACKWARD, .in = {dout, forward.in[0], order}};
    launch positions = {.kind = OPERATION_POSITION_BACKWARD, .attributes = a, .in = {dout}};
    table.out[0] = values(VOCABULARY, WIDTH, 5); /* to be overwritten, absent tokens included */
    positions.out[0] = values(POSITIONS, WIDTH, 6);
    reference_launch(&table);
    reference_launch(&positions);
    check_gradient("embedding", &forward, 1, weights, &table.out[0]);
    check_gradient("positions", &forward, 2, weights, &positions.out[0]);
    operand_release(&table.out[0]);
    operand_release(&positions.out[0]);
    operand_release(&order);
    operand_release(&dout);
    launch_release(&forward);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms),
        cmocka_unit_test(matmuls_and_bias),
        cmocka_unit_test(matmul_with_gelu),
        cmocka_unit_test(rope_is_undone_by_its_inverse),
        cmocka_unit_test(attention),
        cmocka_unit_test(activations),
        cmocka_unit_test(cross_entropy),
        cmocka_unit_test(embedding_and_positions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
