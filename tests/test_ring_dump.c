/* What NCCL says that it uses, against what it was given. */
#include "comm/ring_dump.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GRAPHS(channels)                                                                                               \
    "<graphs version=\"1\">\n<graph id=\"1\"><channel><gpu dev=\"0\"/></channel></graph>\n<graph id=\"0\">" channels   \
    "</graph></graphs>"
#define RING(a, b, c) "<channel><gpu dev=\"" a "\"/><gpu dev=\"" b "\"/><gpu dev=\"" c "\"/></channel>"
#define CROSSING(a, b, c)                                                                                              \
    "<channel><net dev=\"0\"/><gpu dev=\"" a "\"/><gpu dev=\"" b "\"/><gpu dev=\"" c "\"/><net dev=\"0\"/></channel>"

static const struct {
    const char *given, *used;
    const char *difference; /* NULL: none */
} cases[] = {
    {GRAPHS(RING("0", "1", "2")), GRAPHS(RING("0", "1", "2")), NULL},
    {GRAPHS(RING("0", "1", "2")), GRAPHS(RING("2", "0", "1")), NULL},
    {GRAPHS(RING("0", "1", "a")), GRAPHS(RING("0xa", "0x0", "0x1")), NULL},
    {GRAPHS(RING("0", "1", "a")), GRAPHS(RING("1", "10", "0")), NULL},
    {GRAPHS(RING("0", "1", "a")), GRAPHS(RING("0x300000000000001", "0x30000000000000a", "0x300000000000000")), NULL},
    {GRAPHS(RING("0", "1", "a")), GRAPHS(RING("1", "216172782113783818", "0")), NULL},
    {GRAPHS(RING("0", "1", "2") RING("0", "2", "1")),
     GRAPHS(RING("0", "1", "2") RING("0", "2", "1") RING("1", "2", "0") RING("1", "0", "2")), NULL},
    {GRAPHS(CROSSING("0", "1", "2")), GRAPHS(CROSSING("0", "1", "2")), NULL},
    {GRAPHS(RING("0", "1", "2")), GRAPHS(RING("0", "2", "1")), "ring 1 runs over GPUs 0 2 1; given was GPUs 0 1 2"},
    {GRAPHS(RING("0", "a", "10")), GRAPHS(RING("0", "10", "a")),
     "ring 1 runs over GPUs 0 16 10; given was GPUs 0 10 16"},
    {GRAPHS(RING("0", "1", "2") RING("0", "2", "1")), GRAPHS(RING("0", "1", "2") RING("0", "1", "2")),
     "ring 2 runs over GPUs 0 1 2; given was GPUs 0 2 1"},
    {GRAPHS(RING("0", "1", "2") RING("0", "2", "1")), GRAPHS(RING("0", "1", "2")), "there are 1 rings; given were 2"},
    {GRAPHS(RING("0", "1", "2")), GRAPHS(""), "there are 0 rings; given were 1"},
    {GRAPHS(CROSSING("0", "1", "2")), GRAPHS(CROSSING("1", "2", "0")),
     "ring 1 runs over a card, GPUs 1 2 0; given was a card, GPUs 0 1 2"},
    {GRAPHS(CROSSING("0", "1", "2")), GRAPHS(RING("0", "1", "2")),
     "ring 1 runs over GPUs 0 1 2; given was a card, GPUs 0 1 2"},
};

static char given[32], used[32];

static void write_file(char path[32], const char *text) {
    strcpy(path, "/tmp/test_ring_dump.XXXXXX");
    FILE *out = fdopen(mkstemp(path), "w");
    fputs(text, out);
    fclose(out);
}

static bool compare(const char *from, const char *to, int *count, char **difference, error *e) {
    write_file(given, from);
    write_file(used, to);
    const bool good = ring_dump_compare(given, used, count, difference, e);
    unlink(given);
    unlink(used);
    return good;
}

static void test_differences(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        error e = {0};
        char *difference;
        int count;
        assert_true(compare(cases[i].given, cases[i].used, &count, &difference, &e));
        if (cases[i].difference == NULL)
            assert_null(difference);
        else
            assert_string_equal(difference, cases[i].difference);
        assert_int_equal(count, strstr(cases[i].given, RING("0", "2", "1")) != NULL ? 2 : 1);
        free(difference);
    }
}

static void test_files_that_are_none(void **state) {
    (void)state;
    static const char *const texts[][2] = {
        {"<graphs>", "no element found"},
        {"<graphs><graph id=\"1\"/></graphs>", ": has no graph of rings"},
        {GRAPHS("<channel>\n<gpu rank=\"1\"/></channel>"), ":4: a GPU without a device number"},
        {GRAPHS("<channel><gpu dev=\"x\"/></channel>"), ":3: a GPU without a device number"}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        error e = {0};
        char *difference;
        int count;
        assert_false(compare(GRAPHS(RING("0", "1", "2")), texts[i][0], &count, &difference, &e));
        assert_null(difference);
        assert_non_null(strstr(e.message, used));
        assert_non_null(strstr(e.message, texts[i][1]));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_differences), cmocka_unit_test(test_files_that_are_none)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
