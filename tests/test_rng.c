/* Random numbers: Philox's published known answers, moments of the distributions, permutations one to one. */
#include "engine/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static void expect_words(uint64_t seed, uint64_t stream, uint64_t index, const uint32_t expected[4]) {
    uint32_t words[4];
    rng_words(seed, stream, index, words);
    for (int i = 0; i < 4; i++)
        assert_int_equal(words[i], expected[i]);
}

/* The three vectors that Random123 ships for philox4x32-10: all zeros, all ones, digits of pi. */
static void words_match_published_vectors(void **state) {
    (void)state;
    expect_words(0, 0, 0, (const uint32_t[]){0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    expect_words(UINT64_MAX, UINT64_MAX, UINT64_MAX,
                 (const uint32_t[]){0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    expect_words(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88,
                 (const uint32_t[]){0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

/* Sample moments lie within five standard errors; the numbers are fixed, so this either always holds or never. */
static void uniform_has_its_moments(void **state) {
    (void)state;
    enum { COUNT = 100000 };
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        double u = rng_uniform(7, 3, i);
        assert_true(u > 0 && u < 1);
        sum += u;
        squares += (u - 0.5) * (u - 0.5);
    }
    assert_true(fabs(sum / COUNT - 0.5) < 5 * sqrt(1.0 / 12 / COUNT));
    assert_true(fabs(squares / COUNT - 1.0 / 12) < 5 * sqrt(1.0 / 180 / COUNT));
}

static void normal_has_its_moments(void **state) {
    (void)state;
    enum { COUNT = 100000 };
    static float values[COUNT];
    rng_normals(7, 4, 0, COUNT, values);
    double sum = 0, squares = 0, fourths = 0, neighbours = 0, before = values[COUNT - 1];
    for (uint64_t i = 0; i < COUNT; i++) {
        double z = values[i];
        float alone;
        rng_normals(7, 4, i, 1, &alone);
        assert_true(alone == values[i]);
        assert_true(isfinite(z));
        sum += z;
        squares += z * z;
        fourths += z * z * z * z;
        neighbours += z * before;
        before = z;
    }
    assert_true(fabs(sum / COUNT) < 5 * sqrt(1.0 / COUNT));
    assert_true(fabs(squares / COUNT - 1) < 5 * sqrt(2.0 / COUNT));
    assert_true(fabs(fourths / COUNT - 3) < 5 * sqrt(96.0 / COUNT));
    assert_true(fabs(neighbours / COUNT) < 5 * sqrt(1.0 / COUNT));
}

/* Values 4i, 4i+1 come from words 0, 1 of counter i, the next two from words 2, 3; here in fp64. fp32 rounds radius (up
 * to 6), cosine and sine a few times each: 3 units in the last place of 4 .. 8 are 1.5e-6. */
static void normals_follow_from_words(void **state) {
    (void)state;
    enum { COUNTERS = 20000, FIRST = 4 * 1000 + 3 }; /* across blocks, from the middle of a counter */
    static float values[4 * COUNTERS];
    rng_normals(11, 5, FIRST, 4 * COUNTERS, values);
    for (uint64_t i = 0; i < 4 * COUNTERS; i++) {
        const uint64_t index = FIRST + i;
        uint32_t words[4];
        rng_words(11, 5, index / 4, words);
        const uint32_t *pair = words + index % 4 / 2 * 2;
        const float uniform = ((float)(pair[0] >> 8) + 0.5f) * 0x1p-24f;
        const double radius = sqrt(-2 * log(uniform)), angle = 2 * 3.14159265358979323846 * 0x1p-24 * (pair[1] >> 8);
        assert_true(fabs(radius * (index % 2 == 0 ? cos(angle) : sin(angle)) - values[i]) < 1.5e-6);
    }
}

static void permutation_is_one_to_one(void **state) {
    (void)state;
    for (uint64_t n = 1; n <= 300; n++) {
        bool seen[300] = {false};
        for (uint64_t i = 0; i < n; i++) {
            uint64_t to = rng_permute(42, n, n, i);
            assert_true(to < n);
            assert_false(seen[to]);
            seen[to] = true;
        }
    }
}

static int compare_numbers(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* A sample of a large permutation: inside, without repeats, and spread over the range. */
static void expect_sampled_permutation(uint64_t n) {
    enum { COUNT = 20000 };
    uint64_t *to = calloc(COUNT, sizeof *to);
    assert_non_null(to);
    double mean = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        to[i] = rng_permute(1, 2, n, i < COUNT / 2 ? i : n - 1 - (i - COUNT / 2));
        assert_true(to[i] < n);
        mean += (double)to[i] / (double)n / COUNT;
    }
    qsort(to, COUNT, sizeof *to, compare_numbers);
    for (size_t i = 1; i < COUNT; i++)
        assert_true(to[i] != to[i - 1]);
    assert_true(fabs(mean - 0.5) < 5 * sqrt(1.0 / 12 / COUNT));
    free(to);
}

static void large_permutations_have_no_repeats(void **state) {
    (void)state;
    expect_sampled_permutation(20000);
    expect_sampled_permutation((UINT64_C(1) << 20) + 1); /* just over a power of four: most walking */
    expect_sampled_permutation(UINT64_C(1) << 32);
    expect_sampled_permutation(UINT64_C(1000000000039));
    expect_sampled_permutation((UINT64_C(1) << 62) + 1);
}

static void permutations_differ_by_seed_and_stream(void **state) {
    (void)state;
    enum { N = 1000 };
    int same_seed = 0, same_stream = 0, fixed = 0;
    for (uint64_t i = 0; i < N; i++) {
        uint64_t to = rng_permute(1, 1, N, i);
        same_seed += to == rng_permute(2, 1, N, i);
        same_stream += to == rng_permute(1, 2, N, i);
        fixed += to == i;
    }
    /* Two random permutations agree in 1 place on average; 10 or more happens once in ten million. */
    assert_in_range(same_seed, 0, 9);
    assert_in_range(same_stream, 0, 9);
    assert_in_range(fixed, 0, 9);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_match_published_vectors),
        cmocka_unit_test(uniform_has_its_moments),
        cmocka_unit_test(normal_has_its_moments),
        cmocka_unit_test(normals_follow_from_words),
        cmocka_unit_test(permutation_is_one_to_one),
        cmocka_unit_test(large_permutations_have_no_repeats),
        cmocka_unit_test(permutations_differ_by_seed_and_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
