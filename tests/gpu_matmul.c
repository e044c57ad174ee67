/* Matrix products of the CUDA device (cuBLASLt) against the reference kernel in fp64 on the same values: all layouts,
 * storage types and gradients in fp32, bias, adding, TF32, odd sizes, with a gelu or column sums where the device does
 * both at once. Each twice, with the same bits. */
#include "cuda/launches.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

typedef struct product {
    int64_t m, n, k;
    bool transpose_a, transpose_b, bias, adds, tf32;
    bool gelu, keeps, sums; /* keeps: what the gelu is taken of */
    dtype input, output;
} product;

static launch launch_of(const product *p) {
    launch l = {.kind = OPERATION_MATMUL, .accumulate = p->adds};
    l.attributes =
        (attributes){.transpose_a = p->transpose_a, .transpose_b = p->transpose_b, .tf32 = p->tf32, .gelu = p->gelu};
    l.in[0] = operand_random(DTYPE_F32, p->transpose_a ? p->k : p->m, p->transpose_a ? p->m : p->k, 1, 1);
    l.in[1] = operand_random(DTYPE_F32, p->transpose_b ? p->n : p->k, p->transpose_b ? p->k : p->n, 1, 2);
    if (p->bias)
        l.in[2] = operand_random(DTYPE_F32, p->n, 1, 1, 3);
    l.out[0] = operand_random(DTYPE_F32, p->m, p->n, 1, 4);
    if (p->keeps)
        l.out[1] = operand_random(DTYPE_F32, p->m, p->n, 1, 5);
    if (p->sums)
        l.out[2] = operand_random(DTYPE_F32, p->n, 1, 1, 6);
    launch typed = cuda_launch_typed(&l, p->input, p->output);
    launch_release(&l);
    return typed;
}

/* Sums of k products of numbers below 1, in fp32 and in any order: each addition rounds a partial sum of about
 * sqrt(k) / 3. TF32 rounds both factors to 11 bits, which is 2^13 roundoffs of fp32 each: some 8 deviations of a sum of
 * k such errors, that are independent. */
static accuracy nearness(const product *p) {
    double root = 1;
    while (root * root < (double)p->k)
        root++;
    return (accuracy){.relative = 2, .absolute = 8 * ((double)p->k / 3 + 2) + (p->tf32 ? 8192 * 4 * root : 0)};
}

/* gelu passes on what its argument is off by, at most 1.13 times. That may be rounded to the storage before, and the
 * library's tanh may be the processor's, of 11 bits: a half of 2^-11 of the argument, which is no larger than the
 * largest result. */
static accuracy nearness_of_gelu(const product *p) {
    accuracy near = nearness(p);
    near.absolute *= 1.13;
    near.spread = 0x1p12 + 1.13 * (p->input == DTYPE_BF16 ? 0x1p15 : p->input == DTYPE_F16 ? 0x1p12 : 0);
    return near;
}

static void check_product(const product *p) {
    char where[160];
    snprintf(where, sizeof where, "%lld x %lld x %lld%s%s%s%s%s%s%s%s, %s to %s", (long long)p->m, (long long)p->n,
             (long long)p->k, p->transpose_a ? ", a transposed" : "", p->transpose_b ? ", b transposed" : "",
             p->bias ? ", bias" : "", p->adds ? ", adding" : "", p->tf32 ? ", TF32" : "", p->gelu ? ", gelu" : "",
             p->keeps ? " kept" : "", p->sums ? ", sums" : "", dtype_name(p->input), dtype_name(p->output));
    launch l = launch_of(p), want = cuda_launch_reference(&l);
    launch got = cuda_launch_run(&l, (cuda_placement){0}), again = cuda_launch_run(&l, (cuda_placement){0});
    for (int o = 0; o < OPERATION_OUTPUTS; o++)
        if (l.out[o].data != NULL) {
            cuda_launch_compare(&got, &want, o, o == 0 && p->gelu ? nearness_of_gelu(p) : nearness(p), where);
            assert_memory_equal(got.out[o].data, again.out[o].data, cuda_operand_bytes(&got.out[o]));
        }
    launch_release(&l);
    launch_release(&want);
    launch_release(&got);
    launch_release(&again);
}

static const struct {
    dtype input, output;
    bool tf32;
} types[] = {
    {DTYPE_F32, DTYPE_F32, false},  {DTYPE_F32, DTYPE_F32, true},  {DTYPE_BF16, DTYPE_BF16, false},
    {DTYPE_BF16, DTYPE_F32, false}, {DTYPE_F16, DTYPE_F16, false}, {DTYPE_F16, DTYPE_F32, false},
};
enum { TYPES = sizeof types / sizeof *types };

static void every_form(const int64_t size[3]) {
    for (int t = 0; t < TYPES; t++)
        for (int form = 0; form < 16; form++) {
            const product p = {.m = size[0],
                               .n = size[1],
                               .k = size[2],
                               .transpose_a = (form & 1) != 0,
                               .transpose_b = (form & 2) != 0,
                               .bias = (form & 4) != 0,
                               .adds = (form & 8) != 0,
                               .tf32 = types[t].tf32,
                               .input = types[t].input,
                               .output = types[t].output};
            const bool weight_gradient = p.input != p.output; /* those have no bias */
            if (!(p.bias && (p.adds || weight_gradient)))
                check_product(&p);
        }
}

static void odd_sizes(void **state) {
    (void)state;
    const int64_t sizes[][3] = {{1, 1, 1}, {3, 5, 7}, {17, 33, 9}, {65, 31, 63}, {1, 97, 36}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        every_form(sizes[s]);
}

static void aligned_sizes(void **state) {
    (void)state;
    const int64_t sizes[][3] = {{8, 16, 8}, {64, 64, 64}, {128, 96, 64}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        every_form(sizes[s]);
}

/* ---- with others' work ---- */

/* Checks it if the device does both at once, which it need not; returns whether. */
static bool check_fused(const product *p) {
    launch l = launch_of(p);
    const bool fuses = cuda_launch_fuses(&l);
    launch_release(&l);
    if (fuses)
        check_product(p);
    return fuses;
}

static const int64_t fused_sizes[][3] = {{8, 16, 8}, {128, 96, 64}, {17, 40, 33}, {1, 8, 2}, {65, 200, 127}};
enum { FUSED_SIZES = sizeof fused_sizes / sizeof *fused_sizes };

static void gelu(void **state) {
    (void)state;
    int checked = 0;
    for (int s = 0; s < FUSED_SIZES; s++)
        for (int t = 0; t < TYPES; t++)
            for (int form = 0; form < 8 && types[t].input == types[t].output; form++) {
                const product p = {.m = fused_sizes[s][0],
                                   .n = fused_sizes[s][1],
                                   .k = fused_sizes[s][2],
                                   .transpose_b = (form & 1) != 0,
                                   .bias = (form & 2) != 0,
                                   .tf32 = types[t].tf32,
                                   .gelu = true,
                                   .keeps = (form & 4) != 0,
                                   .input = types[t].input,
                                   .output = types[t].output};
                const bool fuses = check_fused(&p);
                assert_true(!fuses || p.tf32 || p.input != DTYPE_F32);
                checked += fuses;
            }
    print_message("%d products with a gelu\n", checked);
    assert_true(checked > 0);
}

static void column_sums(void **state) {
    (void)state;
    int checked = 0;
    for (int s = 0; s < FUSED_SIZES; s++)
        for (int t = 0; t < TYPES; t++)
            for (int form = 0; form < 2; form++) {
                const product p = {.m = fused_sizes[s][0],
                                   .n = fused_sizes[s][1],
                                   .k = fused_sizes[s][2],
                                   .transpose_a = form != 0,
                                   .tf32 = types[t].tf32,
                                   .sums = true,
                                   .input = types[t].input,
                                   .output = types[t].output};
                checked += check_fused(&p);
            }
    print_message("%d products with column sums\n", checked);
    assert_true(checked > 0);
}

/* What the library's documentation rules out is not asked of it. */
static void what_is_never_fused(void **state) {
    (void)state;
    const dtype half = DTYPE_BF16;
    const product refused[] = {
        {.m = 8, .n = 8, .k = 8, .gelu = true, .input = DTYPE_F32, .output = DTYPE_F32},
        {.m = 8, .n = 12, .k = 8, .gelu = true, .keeps = true, .input = half, .output = half},
        {.m = 8, .n = 8, .k = 1, .sums = true, .input = half, .output = half},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        assert_false(check_fused(&refused[i]));
    launch sums =
        launch_of(&(product){.m = 8, .n = 8, .k = 8, .transpose_a = true, .sums = true, .input = half, .output = half});
    launch mixed = sums;
    mixed.out[2].type = DTYPE_F32;
    assert_true(cuda_launch_fuses(&sums));
    assert_false(cuda_launch_fuses(&mixed));
    launch_release(&sums);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(odd_sizes), cmocka_unit_test(aligned_sizes),
                                       cmocka_unit_test(gelu), cmocka_unit_test(column_sums),
                                       cmocka_unit_test(what_is_never_fused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
