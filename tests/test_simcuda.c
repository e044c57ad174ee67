/* The simulated GPU: misuses are reported and correct programs are not, for many seeds; formats, limits, captures and
 * counters are as CUDA's. */
#include "simcuda/cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MISUSE_SEEDS = 20, CORRECT_SEEDS = 50 };

typedef struct judged {
    const simcuda_case *what;
    bool right;
} judged;

static void run_case(void *state) {
    judged *j = state;
    j->right = j->what->run();
}

/* In how many of the seeds each misuse was reported in the expected words; all must be, in every one. */
static void check_misuses(const char *title, const simcuda_case *cases) {
    size_t count = 0, caught = 0;
    for (const simcuda_case *c = cases; c->name; c++, count++) {
        int seeds = 0;
        char missed[1024] = "none";
        for (uint64_t seed = 0; seed < MISUSE_SEEDS; seed++) {
            judged j = {c, false};
            simcuda_seed(seed);
            char text[1024] = "none";
            if (simcuda_catch(run_case, &j, text, sizeof text) && strstr(text, c->says))
                seeds++;
            else
                memcpy(missed, text, sizeof missed);
        }
        caught += seeds == MISUSE_SEEDS;
        if (seeds != MISUSE_SEEDS)
            print_message("%s: %s: reported under %d of %d seeds; another report: %s\n", title, c->name, seeds,
                          MISUSE_SEEDS, missed);
    }
    print_message("%s: %zu of %zu misuses are reported under each of %d seeds\n", title, caught, count, MISUSE_SEEDS);
    assert_int_equal(caught, count);
}

static void check_correct(const simcuda_case *cases) {
    for (const simcuda_case *c = cases; c->name; c++)
        for (uint64_t seed = 0; seed < CORRECT_SEEDS; seed++) {
            judged j = {c, false};
            char text[1024];
            simcuda_seed(seed);
            if (simcuda_catch(run_case, &j, text, sizeof text))
                fail_msg("%s, seed %llu: %s", c->name, (unsigned long long)seed, text);
            if (!j.right)
                fail_msg("%s, seed %llu: wrong values", c->name, (unsigned long long)seed);
        }
}

static void shared_memory(void **state) {
    (void)state;
    check_misuses("shared memory", simcuda_shared_misuses);
}

static void global_memory(void **state) {
    (void)state;
    check_misuses("global memory", simcuda_global_misuses);
}

static void meetings(void **state) {
    (void)state;
    check_misuses("threads that do not meet", simcuda_meeting_misuses);
}

static void streams(void **state) {
    (void)state;
    check_misuses("streams and copies", simcuda_stream_misuses);
}

static void correct_kernels(void **state) {
    (void)state;
    check_correct(simcuda_correct_kernels);
}

static void correct_streams(void **state) {
    (void)state;
    check_correct(simcuda_correct_streams);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_memory), cmocka_unit_test(global_memory),   cmocka_unit_test(meetings),
        cmocka_unit_test(streams),       cmocka_unit_test(correct_kernels), cmocka_unit_test(correct_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
