/* The command line of fsdp_train: what it means, and what each mistake is answered with. */
#include "launch/command_line.h"
#include "launch/nearest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { MOST = 6 };

static bool parse(const char *const arguments[MOST], command_line *line, error *e) {
    char *argv[MOST + 2] = {(char *)(uintptr_t) "fsdp_train"};
    int argc = 1;
    for (int i = 0; i < MOST && arguments[i] != NULL; i++)
        argv[argc++] = (char *)(uintptr_t)arguments[i];
    return command_line_parse(argc, argv, line, e);
}

static command_line good(const char *const arguments[MOST]) {
    error e = {0};
    command_line line = {0};
    parse(arguments, &line, &e);
    assert_string_equal(e.message, "");
    return line;
}

#define GOOD(...) good((const char *const[MOST]){__VA_ARGS__})

static void training_with_overrides(void **state) {
    (void)state;
    command_line line = GOOD("config.ini", "train.steps=3", "data.train=a/b c/d");
    assert_int_equal(line.command, COMMAND_TRAIN);
    assert_string_equal(line.config, "config.ini");
    assert_int_equal(line.override_count, 2);
    assert_string_equal(line.overrides[0], "train.steps=3");
    assert_string_equal(line.overrides[1], "data.train=a/b c/d");
    command_line_free(&line);
    line = GOOD("train.steps=3", "runs/lr=1/config.ini");
    assert_string_equal(line.config, "runs/lr=1/config.ini");
    assert_int_equal(line.override_count, 1);
    command_line_free(&line);
}

static void other_commands(void **state) {
    (void)state;
    command_line line = GOOD("config.ini", "--plan", "--ranks", "64", "shard.unit=2");
    assert_int_equal(line.command, COMMAND_PLAN);
    assert_int_equal(line.ranks, 64);
    assert_int_equal(line.override_count, 1);
    command_line_free(&line);
    line = GOOD("--ranks", "2", "--plan", "config.ini");
    assert_int_equal(line.ranks, 2);
    command_line_free(&line);
    line = GOOD("config.ini", "--plan");
    assert_int_equal(line.ranks, 0);
    command_line_free(&line);
    line = GOOD("config.ini", "--validate");
    assert_int_equal(line.command, COMMAND_VALIDATE);
    command_line_free(&line);
    line = GOOD("--help");
    assert_int_equal(line.command, COMMAND_HELP);
    command_line_free(&line);
    line = GOOD("--version");
    assert_int_equal(line.command, COMMAND_VERSION);
    command_line_free(&line);
    line = GOOD("--keys");
    assert_int_equal(line.command, COMMAND_KEYS);
    command_line_free(&line);
}

static void mistakes(void **state) {
    (void)state;
    static const struct {
        const char *arguments[MOST], *message;
    } cases[] = {
        {{NULL}, "no config file given; type fsdp_train config.ini, or fsdp_train --help"},
        {{"--plan"}, "no config file given; type fsdp_train config.ini, or fsdp_train --help"},
        {{"config.ini", "--pln"}, "argument --pln: unknown option; did you mean --plan?"},
        {{"config.ini", "--validation"}, "argument --validation: unknown option; did you mean --validate?"},
        {{"config.ini", "--steps=4"},
         "argument --steps=4: unknown option; accepted are --plan, --ranks N, --validate, --help, --version, --keys"},
        {{"-h"}, "argument -h: unknown option; accepted are --plan, --ranks N, --validate, --help, --version, --keys"},
        {{"config.ini", "--plan", "--ranks=4"}, "argument --ranks=4: unknown option; did you mean --ranks?"},
        {{"config.ini", "--plan", "--ranks"}, "argument --ranks: takes a whole number, 1 to 1000000, after a blank"},
        {{"config.ini", "--plan", "--ranks", "many"},
         "argument --ranks many: takes a whole number, 1 to 1000000, after a blank"},
        {{"config.ini", "--plan", "--ranks", "0"},
         "argument --ranks 0: takes a whole number, 1 to 1000000, after a blank"},
        {{"config.ini", "--plan", "--ranks", "99999999999"},
         "argument --ranks 99999999999: takes a whole number, 1 to 1000000, after a blank"},
        {{"config.ini", "--ranks", "4"}, "argument --ranks: belongs to --plan; mpirun -np 4 starts 4 ranks"},
        {{"config.ini", "--plan", "--validate"},
         "argument --validate: one of --plan, --validate, --help, --version, --keys at a time"},
        {{"config.ini", "other.ini"},
         "argument other.ini: the config file is config.ini already; overrides are written section.key=value"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        error e = {0};
        command_line line;
        assert_false(parse(cases[i].arguments, &line, &e));
        assert_string_equal(e.message, cases[i].message);
        assert_int_equal(e.code, EXIT_USAGE);
        assert_null(line.overrides);
    }
}

static void distances_between_words(void **state) {
    (void)state;
    assert_int_equal(word_distance("", ""), 0);
    assert_int_equal(word_distance("", "abc"), 3);
    assert_int_equal(word_distance("steps", "steps"), 0);
    assert_int_equal(word_distance("step", "steps"), 1);
    assert_int_equal(word_distance("steps", "stops"), 1);
    assert_int_equal(word_distance("bacth", "batch"), 1); /* swapped neighbours */
    assert_int_equal(word_distance("kitten", "sitting"), 3);
    assert_int_equal(word_distance("ca", "abc"), 3); /* a swapped pair is not edited again */
    const char *nearest = NULL;
    nearest_consider("warmpu", "width", &nearest);
    assert_null(nearest);
    nearest_consider("warmpu", "warmup", &nearest);
    assert_string_equal(nearest, "warmup");
    nearest_consider("warmpu", "warmpus", &nearest); /* as near: the first stays */
    assert_string_equal(nearest, "warmup");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_with_overrides),
        cmocka_unit_test(other_commands),
        cmocka_unit_test(mistakes),
        cmocka_unit_test(distances_between_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
