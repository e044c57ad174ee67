/* The peak of GPUs worked out from what they say of themselves, against their data sheets. */
#include "engine/device/cuda/peak.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

/* Multiprocessors, the clock that the data sheet's tensor-core figures are for, and its dense TFLOP/s: bf16, TF32, fp32
 * (NAN: given for another clock). */
static const struct {
    const char *name;
    multiprocessors of;
    double half, tf32, single;
} gpus[] = {
    {"A100 SXM", {8, 0, 108, 1.41e9}, 312, 156, 19.5}, {"A40", {8, 6, 84, 1.74e9}, 149.7, 74.8, 37.4},
    {"L40S", {8, 9, 142, 2.52e9}, 362, 183, 91.6},     {"H100 SXM", {9, 0, 132, 1.83e9}, 989, 494, NAN},
    {"H100 PCIe", {9, 0, 114, 1.62e9}, 756, 378, NAN},
};

static void near(const char *name, device_peak found, double tflops) {
    print_message("%-10s %7.1f TFLOP/s (%s), data sheet %.1f\n", name, 1e-12 * found.flops, found.basis, tflops);
    if (!isnan(tflops) && fabs(1e-12 * found.flops - tflops) > 0.02 * tflops)
        fail_msg("%s: %g TFLOP/s, not %g", name, 1e-12 * found.flops, tflops);
}

static void data_sheets(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++) {
        near(gpus[i].name, peak_of(&gpus[i].of, DTYPE_BF16, false), gpus[i].half);
        near(gpus[i].name, peak_of(&gpus[i].of, DTYPE_F16, true), gpus[i].half);
        near(gpus[i].name, peak_of(&gpus[i].of, DTYPE_F32, true), gpus[i].tf32);
        near(gpus[i].name, peak_of(&gpus[i].of, DTYPE_F32, false), gpus[i].single);
    }
}

static void unknown(void **state) {
    (void)state;
    const multiprocessors newer = {99, 0, 200, 2e9};
    assert_true(isnan(peak_of(&newer, DTYPE_BF16, false).flops));
}

static void basis(void **state) {
    (void)state;
    assert_string_equal(peak_of(&gpus[0].of, DTYPE_BF16, false).basis, "108 multiprocessors x 1.41 GHz x 2048");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_sheets),
        cmocka_unit_test(unknown),
        cmocka_unit_test(basis),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
