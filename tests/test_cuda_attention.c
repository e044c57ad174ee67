/* The CUDA kernels of attention and its gradient, executed by tests/simcuda or a GPU (cuda/launches.h), against the
 * reference in fp64 on the same values: all storage types, lengths around tiles, causal and full, grouped heads, every
 * compiled head width and odd ones, data off the 128-bit boundaries, under changing seeds, which must give the same
 * bits. */
#include "cuda/launches.h"
#include "engine/device/reference/reference.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct problem {
    int64_t sequences, length, heads, kv_heads, width;
    bool causal;
    double range; /* of queries, keys and values: large ones make one key take all */
} problem;

static launch forward_launch(const problem *p) {
    const int64_t tokens = p->sequences * p->length, row = (p->heads + 2 * p->kv_heads) * p->width;
    launch l = {.kind = OPERATION_ATTENTION,
                .attributes = {.sequence = p->length,
                               .heads = p->heads,
                               .kv_heads = p->kv_heads,
                               .head_width = p->width,
                               .causal = p->causal,
                               .scale = 1 / sqrt((double)p->width)}};
    l.in[0] = operand_random(DTYPE_F32, tokens, row, p->range, 1);
    l.out[0] = operand_random(DTYPE_F32, tokens, p->heads * p->width, 1, 2);
    l.out[1] = operand_random(DTYPE_F32, tokens, p->heads, 1, 3);
    return l;
}

/* Of a forward launch that has run: its input and its results become inputs; their owner is the new launch. */
static launch backward_launch(launch *forward) {
    launch l = {.kind = OPERATION_ATTENTION_BACKWARD, .attributes = forward->attributes};
    const operand *qkv = &forward->in[0], *out = &forward->out[0];
    l.in[0] = operand_random(DTYPE_F32, out->shape[0], out->shape[1], 1, 4);
    l.in[1] = *qkv;
    l.in[2] = *out;
    l.in[3] = forward->out[1];
    l.out[0] = operand_random(DTYPE_F32, qkv->shape[0], qkv->shape[1], 1, 5);
    return l;
}

static double roundoffs_of_fp32(dtype type) { /* that are one of the type */
    return type == DTYPE_BF16 ? 0x1p15 : type == DTYPE_F16 ? 0x1p13 : 1;
}

/* fp32: products of split numbers are off by 4 roundoffs, sums by a few. 16 bits: probabilities, and gradients of
 * scores, are rounded before the second product; a sum of T of them is off by a fraction of its largest term. */
static accuracy nearness(dtype type, double magnitude) {
    return (accuracy){
        .relative = 16, .spread = type == DTYPE_F32 ? 16 : 4 * roundoffs_of_fp32(type), .absolute = magnitude};
}

static void check_kernel(const launch *fp32, dtype type, unsigned number, accuracy near, const char *where) {
    const cuda_placement placement = {.shift = number % 3 == 2};
    launch typed = cuda_launch_typed(fp32, type, type), want = cuda_launch_reference(&typed);
    cuda_launch_order(number);
    launch got = cuda_launch_run(&typed, placement);
    for (int o = 0; o < OPERATION_OUTPUTS; o++)
        if (typed.out[o].data != NULL)
            cuda_launch_compare(&got, &want, o, near, where);
    cuda_launch_order(number + 1000);
    launch again = cuda_launch_run(&typed, placement);
    for (int o = 0; o < OPERATION_OUTPUTS; o++)
        if (typed.out[o].data != NULL)
            assert_memory_equal(got.out[o].data, again.out[o].data,
                                (size_t)(operand_count(&got.out[o]) * dtype_bytes(got.out[o].type)));
    launch_release(&typed);
    launch_release(&want);
    launch_release(&got);
    launch_release(&again);
}

static void check_problem(const problem *p, dtype type, unsigned number) {
    char where[200];
    snprintf(where, sizeof where, "%s, %lld sequences of %lld, %lld heads, %lld key heads, width %lld, %s",
             dtype_name(type), (long long)p->sequences, (long long)p->length, (long long)p->heads,
             (long long)p->kv_heads, (long long)p->width, p->causal ? "causal" : "full");
    launch forward = forward_launch(p);
    check_kernel(&forward, type, number, nearness(type, 16 * p->range), where);
    reference_launch(&forward);
    launch backward = backward_launch(&forward);
    check_kernel(&backward, type, number, nearness(type, 16), where);
    launch_release(&backward);
}

static const dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};

static void lengths(void **state) {
    (void)state;
    const int64_t all[] = {1, 2, 63, 64, 65, 127, 129};
    for (unsigned i = 0; i < 7 * 3; i++) {
        const problem p = {.sequences = 1 + i % 2,
                           .length = all[i / 3],
                           .heads = 2,
                           .kv_heads = 1 + i % 2,
                           .width = 16,
                           .causal = i / 3 % 2 == 0,
                           .range = 1};
        check_problem(&p, types[i % 3], i);
        const problem other = {.sequences = 1,
                               .length = all[i / 3],
                               .heads = 1,
                               .kv_heads = 1,
                               .width = 8,
                               .causal = i / 3 % 2 == 1,
                               .range = 1};
        check_problem(&other, types[i % 3], i + 100);
    }
}

static void head_widths(void **state) {
    (void)state;
    const int64_t all[] = {1, 5, 32, 33, 64, 80, 96, 100, 128};
    for (unsigned i = 0; i < 9 * 3; i++) {
        const problem p = {.sequences = 1,
                           .length = 70,
                           .heads = 2,
                           .kv_heads = 1,
                           .width = all[i / 3],
                           .causal = i % 2 == 0,
                           .range = 1};
        check_problem(&p, types[i % 3], i);
    }
}

static void grouped_heads(void **state) {
    (void)state;
    const int64_t groups[][2] = {{3, 3}, {4, 2}, {6, 2}, {5, 1}};
    for (unsigned i = 0; i < 4 * 3; i++) {
        const problem p = {.sequences = 2,
                           .length = 33,
                           .heads = groups[i / 3][0],
                           .kv_heads = groups[i / 3][1],
                           .width = 24,
                           .causal = true,
                           .range = 1};
        check_problem(&p, types[i % 3], i);
    }
}

/* Scores in the hundreds: exponentials would overflow, and one key takes nearly all. */
static void large_scores(void **state) {
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        problem p = {.sequences = 1, .length = 65, .heads = 1, .kv_heads = 1, .width = 32, .causal = true, .range = 12};
        launch forward = forward_launch(&p);
        /* a score's own rounding, a roundoff of hundreds, becomes a relative error of its exponential */
        check_kernel(&forward, types[i], i, nearness(types[i], 4000), "large scores");
        launch_release(&forward);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths),
        cmocka_unit_test(head_widths),
        cmocka_unit_test(grouped_heads),
        cmocka_unit_test(large_scores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
