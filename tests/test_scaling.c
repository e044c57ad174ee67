/* What fsdp_scaling makes of the metrics of runs: the middle half of the steps, the median run, terms that add up. */
#include "launch/scaling.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char path[] = "/tmp/test_scaling_XXXXXX";

static int make_file(void **state) {
    (void)state;
    strcpy(path + sizeof path - 7, "XXXXXX");
    const int file = mkstemp(path);
    return file < 0 || close(file) != 0;
}

static int remove_file(void **state) {
    (void)state;
    return unlink(path);
}

static void write_step(FILE *f, int step, double seconds, double compute, double imbalance, int slowest) {
    fprintf(f,
            "{\"event\":\"step\",\"step\":%d,\"seconds\":%g,\"tokens_per_second\":%g,\"compute\":%g,\"imbalance\":%g,"
            "\"slowest\":%d,\"exposed_gather\":0.25,\"exposed_reduce\":0.125,\"idle\":0.125}\n",
            step, seconds, 1024 / seconds, compute, imbalance, slowest);
}

static void a_run_is_the_middle_half_of_its_steps(void **state) {
    (void)state;
    error e = {0};
    scaling_run run;
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("{\"event\":\"start\"}\n", f);
    write_step(f, 1, 1000, 1000, 1, 0); /* skipped */
    write_step(f, 2, 900, 100, 3, 0);   /* a hiccup */
    write_step(f, 3, 2, 1, 1.5, 1);
    write_step(f, 4, 4, 2, 1.75, 1);
    fputs("{\"event\":\"validation\",\"step\":4,\"loss\":1}\n", f);
    write_step(f, 5, 0.5, 0.25, 1, 1);
    assert_int_equal(fclose(f), 0);
    assert_true(scaling_read(path, 1, &run, &e));
    assert_true(run.seconds == 3 && run.compute == 1.5 && run.slowest_compute == 2.5);
    assert_true(run.gather == 0.25 && run.reduce == 0.125 && run.other == 0.125);
    assert_true(fabs(run.tokens - 1024) < 1e-9);
    assert_int_equal(run.slowest, 1);
    assert_true(run.slowest_share == 0.75);
}

static void unreadable_runs_are_refused(void **state) {
    (void)state;
    error e = {0};
    scaling_run run;
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    write_step(f, 1, 1, 1, 1, 0);
    fputs("{\"event\":\"step\",\"step\":2,\"seconds\":1,\"tokens_per_second\":1,\"compute\":null}\n", f);
    assert_int_equal(fclose(f), 0);
    assert_false(scaling_read(path, 1, &run, &e));
    assert_non_null(strstr(e.message, ": a step says not what it waited for: {"));
    e = (error){0};
    assert_false(scaling_read(path, 2, &run, &e));
    assert_non_null(strstr(e.message, ": no steps behind the first 2"));
}

static const scaling_run base[] = {{4, 100, 3, 3, 0.25, 0.5, 0.25, 0, 1},
                                   {5, 100, 4, 4, 0.25, 0.5, 0.25, 0, 1},
                                   {9, 100, 8, 8, 0.25, 0.5, 0.25, 0, 1}};
static const scaling_run pair[] = {
    {8, 200, 5, 6, 1, 0.5, 0.5, 1, 1}, {10, 200, 5, 6, 2, 1.5, 0.5, 1, 0.75}, {10, 200, 5, 6, 2, 1.5, 0.5, 1, 0.75}};

static void compare(scaling *s, scaling_point points[2], bool weak) {
    memset(points, 0, 2 * sizeof *points);
    points[0].ranks = 1;
    points[0].runs = (scaling_run *)(uintptr_t)base;
    points[1].ranks = 2;
    points[1].runs = (scaling_run *)(uintptr_t)pair;
    *s = (scaling){.config = "x", .weak = weak, .repeats = 3, .points = points, .count = 2};
    scaling_compare(s);
}

static void terms_add_up(void **state) {
    (void)state;
    for (int weak = 0; weak < 2; weak++) {
        scaling s;
        scaling_point points[2];
        compare(&s, points, weak);
        for (int i = 0; i < 2; i++) {
            double lost = 0;
            for (int t = 0; t < TERM_COUNT; t++)
                lost += points[i].lost[t];
            assert_true(fabs(scaling_closure(&points[i]) - 1) < 1e-12);
            assert_true(fabs(points[i].ideal + lost - points[i].median.seconds) < 1e-12);
        }
    }
}

static void weak_scaling_keeps_the_time(void **state) {
    (void)state;
    scaling s;
    scaling_point points[2];
    compare(&s, points, true);
    assert_true(points[0].efficiency == 1 && points[0].speed_up == 1);
    assert_true(points[1].ideal == 5 && points[1].efficiency == 0.5 && points[1].speed_up == 1);
    assert_true(points[1].lowest == 0.5 && points[1].highest == 0.9); /* 4/8, 5/10, 9/10 */
    assert_true(points[1].terms[TERM_COMPUTE] == 4 && points[1].terms[TERM_SLOWER] == 1);
    assert_true(points[1].terms[TERM_IMBALANCE] == 1 && points[1].lost[TERM_GATHER] == 1.75);
}

static void strong_scaling_divides_it(void **state) {
    (void)state;
    scaling s;
    scaling_point points[2];
    compare(&s, points, false);
    assert_true(points[1].ideal == 2.5 && points[1].efficiency == 0.25 && points[1].speed_up == 0.5);
    assert_true(points[1].terms[TERM_COMPUTE] == 2 && points[1].terms[TERM_SLOWER] == 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_run_is_the_middle_half_of_its_steps),
                                       cmocka_unit_test(unreadable_runs_are_refused), cmocka_unit_test(terms_add_up),
                                       cmocka_unit_test(weak_scaling_keeps_the_time),
                                       cmocka_unit_test(strong_scaling_divides_it)};
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
