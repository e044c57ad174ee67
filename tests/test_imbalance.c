/* Imbalance of a step over ranks, and which rank is named for staying behind. */
#include "launch/imbalance.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void a_step_is_described_by_its_slowest_rank(void **state) {
    (void)state;
    const step_shares shares[] = {{1, 0.5, 0.25, 0.25}, {2, 0.125, 0, 0.25}, {1.5, 0.25, 0.25, 0}};
    const imbalance found = imbalance_of(shares, 3);
    assert_int_equal(found.slowest, 1);
    assert_true(found.compute == 1.5);
    assert_true(found.exposed == 0.75);
    assert_true(found.slowest_shares.compute == 2 && found.slowest_shares.gather == 0.125);
    assert_true(found.sum.compute == 4.5 && found.sum.gather == 0.875 && found.sum.reduce == 0.5);
    assert_true(found.sum.idle == 0.5);
}

static void what_is_not_measured_is_not_known(void **state) {
    (void)state;
    const step_shares shares[] = {{1, 0, 0, 0}, {2, NAN, NAN, 0}};
    const imbalance found = imbalance_of(shares, 2);
    assert_true(isnan(found.exposed));
    assert_true(isnan(found.compute));
}

/* Steps of three ranks, of which one computes `factor` times as long; the rank named in them, -1: none, and when. */
static int watch(laggards *l, int steps, int slow, double factor, int *named_at) {
    int named = -1;
    for (int step = 1; step <= steps; step++) {
        step_shares shares[] = {{.compute = 1}, {.compute = 1}, {.compute = 1}};
        shares[slow].compute = factor;
        double behind = 0;
        const int rank = laggards_watch(l, shares, &behind);
        if (rank < 0)
            continue;
        assert_int_equal(named, -1); /* once */
        assert_true(fabs(behind - (3 * factor / (2 + factor) - 1)) < 1e-12);
        named = rank;
        *named_at = step;
    }
    return named;
}

static void who_stays_behind_is_named_once(void **state) {
    (void)state;
    int at = 0;
    laggards l = laggards_create(3);
    assert_int_equal(watch(&l, 100, 1, 1.5, &at), 1);
    assert_int_equal(at, 20);
    assert_int_equal(watch(&l, 100, 2, 1.5, &at), 2);
    assert_int_equal(at, 20);
    assert_int_equal(watch(&l, 40, 2, 1, &at), -1);
    assert_int_equal(watch(&l, 40, 2, 1.5, &at), -1); /* said before, and nobody else since */
    assert_int_equal(watch(&l, 40, 1, 1.5, &at), 1);
    laggards_release(&l);
}

static void the_limit_is_ten_percent_of_the_mean(void **state) {
    (void)state;
    int at = 0;
    laggards l = laggards_create(3);
    assert_int_equal(watch(&l, 100, 0, 1.157, &at), -1); /* 3 * 1.157 / 3.157 = 1.0994 */
    assert_int_equal(watch(&l, 100, 0, 1.16, &at), 0);   /* 1.1013 */
    laggards_release(&l);
}

static void hiccups_name_nobody(void **state) {
    (void)state;
    int at = 0;
    laggards l = laggards_create(3);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(watch(&l, 1, 1, 50, &at), -1);
        assert_int_equal(watch(&l, 14, 1, 1, &at), -1);
    }
    laggards_release(&l);
}

static void one_rank_is_never_behind(void **state) {
    (void)state;
    double behind;
    const step_shares alone = {.compute = 1};
    laggards l = laggards_create(1);
    for (int step = 0; step < 100; step++)
        assert_int_equal(laggards_watch(&l, &alone, &behind), -1);
    laggards_release(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_step_is_described_by_its_slowest_rank),
                                       cmocka_unit_test(what_is_not_measured_is_not_known),
                                       cmocka_unit_test(who_stays_behind_is_named_once),
                                       cmocka_unit_test(the_limit_is_ten_percent_of_the_mean),
                                       cmocka_unit_test(hiccups_name_nobody),
                                       cmocka_unit_test(one_rank_is_never_behind)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
