/* The next token from logits: the likeliest, the k likeliest, and frequencies as the softmax says. */
#include "launch/sampling.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const float logits[5] = {0.5f, 2.0f, -1.0f, 2.0f, 1.0f};

static void test_greedy(void **state) {
    (void)state;
    const sampling how = {.temperature = 0, .seed = 7};
    for (int64_t position = 0; position < 10; position++)
        assert_int_equal(sample_token(&how, position, logits, 5), 1);
}

/* Over many draws every token comes as often as its probability says, to four standard deviations. */
static void check_frequencies(double temperature, int64_t top_k, const double weights[5]) {
    enum { DRAWS = 20000 };
    const sampling how = {.temperature = temperature, .top_k = top_k, .seed = 3};
    int counts[5] = {0};
    double total = 0;
    for (int64_t position = 0; position < DRAWS; position++)
        counts[sample_token(&how, position, logits, 5)]++;
    for (int i = 0; i < 5; i++)
        total += weights[i];
    for (int i = 0; i < 5; i++) {
        const double p = weights[i] / total;
        assert_true(fabs(counts[i] - DRAWS * p) <= 4 * sqrt(DRAWS * p * (1 - p)));
    }
}

static void test_frequencies(void **state) {
    (void)state;
    const double all[5] = {exp(0.5), exp(2), exp(-1), exp(2), exp(1)};
    const double cold[5] = {exp(1), exp(4), exp(-2), exp(4), exp(2)};
    const double three[5] = {0, exp(2), 0, exp(2), exp(1)};
    const double one[5] = {0, 1, 0, 0, 0};
    check_frequencies(1, 0, all);
    check_frequencies(1, 99, all);
    check_frequencies(0.5, 0, cold);
    check_frequencies(1, 3, three);
    check_frequencies(1, 1, one);
}

static void test_repeatable(void **state) {
    (void)state;
    const sampling first = {.temperature = 1, .seed = 1}, second = {.temperature = 1, .seed = 2};
    int differ = 0;
    for (int64_t position = 0; position < 50; position++) {
        const int32_t token = sample_token(&first, position, logits, 5);
        assert_int_equal(token, sample_token(&first, position, logits, 5));
        differ += token != sample_token(&second, position, logits, 5);
    }
    assert_true(differ > 0);
}

static void test_not_finite(void **state) {
    (void)state;
    const sampling how = {.temperature = 1};
    assert_int_equal(sample_token(&how, 0, (float[]){0, NAN}, 2), -1);
    assert_int_equal(sample_token(&how, 0, (float[]){INFINITY, 0}, 2), -1);
    assert_int_equal(sample_token(&how, 0, (float[]){3}, 1), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_greedy), cmocka_unit_test(test_frequencies),
                                       cmocka_unit_test(test_repeatable), cmocka_unit_test(test_not_finite)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
