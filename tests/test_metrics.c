/* metrics.jsonl byte by byte, output folders that cannot be used, and the step lines and bars on standard output. */
#include "engine/checked.h"
#include "launch/metrics.h"
#include "launch/progress.h"
#include "launch/terminal.h"

#include <math.h>
#include <pty.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/test_metrics_XXXXXX";

static int enter_folder(void **state) {
    (void)state;
    strcpy(folder + sizeof folder - 7, "XXXXXX");
    return mkdtemp(folder) == NULL || chdir(folder) != 0;
}

static int leave_folder(void **state) {
    (void)state;
    char *command = memory_format("rm -rf %s", folder);
    int result = chdir("/") != 0 || system(command) != 0;
    free(command);
    return result;
}

static void write_text(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void expect_file(const char *path, const char *expected) {
    char text[4096];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    assert_string_equal(text, expected);
}

static metrics *open_metrics(const char *path) {
    error e = {0};
    metrics *m = NULL;
    metrics_open(path, &m, &e);
    assert_string_equal(e.message, "");
    return m;
}

static const step_report example = {.step = 12,
                                    .loss = 3.4127,
                                    .gradient_norm = 1.2345,
                                    .learning_rate = 3e-4,
                                    .tokens = 12288,
                                    .seconds = 0.5,
                                    .exposed = 0.125,
                                    .slowest = 3,
                                    .compute = 0.25,
                                    .imbalance = 1.5,
                                    .exposed_gather = 0.0625,
                                    .exposed_reduce = 0.03125,
                                    .idle = NAN,
                                    .tokens_per_second = 12345.4,
                                    .tflops = 0.25,
                                    .mfu = NAN,
                                    .memory = 700000000};

#define STEP_12                                                                                                        \
    "{\"event\":\"step\",\"step\":12,\"loss\":3.4127000000000001,\"gradient_norm\":1.2344999999999999,"                \
    "\"learning_rate\":0.00029999999999999997,\"tokens\":12288,\"seconds\":0.5,\"exposed\":0.125,"                     \
    "\"compute\":0.25,\"imbalance\":1.5,\"slowest\":3,\"exposed_gather\":0.0625,\"exposed_reduce\":0.03125,"           \
    "\"idle\":null,\"tokens_per_second\":12345.4,\"tflops\":0.25,\"mfu\":null,\"memory\":700000000}\n"

static void events_are_lines_of_json(void **state) {
    (void)state;
    error e = {0};
    metrics *m = open_metrics("out/deep/er");
    assert_true(metrics_start(m, json_pack("{s:i,s:s}", "ranks", 2, "device", "cpu"), &e));
    expect_file("out/deep/er/metrics.jsonl", "{\"event\":\"start\",\"ranks\":2,\"device\":\"cpu\"}\n"); /* flushed */
    assert_true(metrics_step(m, &example, &e));
    assert_true(metrics_validation(m, 12, 2.5, &e));
    assert_true(metrics_end(m, END_FINISHED, 12, 6.25, NULL, &e));
    metrics_close(m);
    expect_file("out/deep/er/metrics.jsonl",
                "{\"event\":\"start\",\"ranks\":2,\"device\":\"cpu\"}\n" STEP_12
                "{\"event\":\"validation\",\"step\":12,\"loss\":2.5}\n"
                "{\"event\":\"end\",\"reason\":\"finished\",\"step\":12,\"seconds\":6.25}\n");
}

static void ends_have_reasons(void **state) {
    (void)state;
    error e = {0};
    metrics *m = open_metrics(".");
    metrics_end(m, END_SIGNAL, 3, 1, NULL, &e);
    metrics_end(m, END_ERROR, 4, 1, "a \"quoted\" reason", &e);
    metrics_close(m);
    expect_file("metrics.jsonl", "{\"event\":\"end\",\"reason\":\"signal\",\"step\":3,\"seconds\":1.0}\n"
                                 "{\"event\":\"end\",\"reason\":\"error\",\"step\":4,\"seconds\":1.0,"
                                 "\"message\":\"a \\\"quoted\\\" reason\"}\n");
    assert_int_equal(e.code, 0);
}

static void what_is_not_finite_is_null(void **state) {
    (void)state;
    error e = {0};
    step_report report = example;
    report.loss = INFINITY;
    report.gradient_norm = -NAN;
    report.mfu = 0.5;
    metrics *m = open_metrics(".");
    assert_true(metrics_step(m, &report, &e));
    metrics_close(m);
    json_error_t problem;
    json_t *event = json_load_file("metrics.jsonl", JSON_REJECT_DUPLICATES, &problem);
    assert_non_null(event);
    assert_true(json_is_null(json_object_get(event, "loss")));
    assert_true(json_is_null(json_object_get(event, "gradient_norm")));
    assert_true(json_real_value(json_object_get(event, "mfu")) == 0.5);
    json_decref(event);
}

static void numbers_keep_all_their_bits(void **state) {
    (void)state;
    error e = {0};
    metrics *m = open_metrics(".");
    static const double losses[] = {0.1, 1.0 / 3, 5e-324, 1.7976931348623157e308, 123456789.123456789};
    enum { COUNT = sizeof losses / sizeof *losses };
    for (int i = 0; i < COUNT; i++)
        assert_true(metrics_validation(m, INT64_MAX, losses[i], &e));
    metrics_close(m);
    FILE *f = fopen("metrics.jsonl", "r");
    assert_non_null(f);
    for (int i = 0; i < COUNT; i++) {
        json_error_t problem;
        json_t *event = json_loadf(f, JSON_DISABLE_EOF_CHECK, &problem);
        assert_true(json_real_value(json_object_get(event, "loss")) == losses[i]);
        assert_true(json_integer_value(json_object_get(event, "step")) == INT64_MAX);
        json_decref(event);
    }
    fclose(f);
}

static void expect_open_error(const char *path, const char *message) {
    error e = {0};
    metrics *m = NULL;
    assert_false(metrics_open(path, &m, &e));
    assert_string_equal(e.message, message);
    assert_int_equal(e.code, EXIT_USAGE);
    assert_null(m);
}

static void runs_append(void **state) {
    (void)state;
    error e = {0};
    write_text("metrics.jsonl", "{\"event\":\"end\"}\n{\"event\":\"st"); /* the run before was killed */
    metrics *m = open_metrics(".");
    metrics_step(m, &example, &e);
    metrics_close(m);
    m = open_metrics(".");
    metrics_step(m, &example, &e);
    metrics_close(m);
    expect_file("metrics.jsonl", "{\"event\":\"end\"}\n" STEP_12 STEP_12);
}

static void half_a_line_is_dropped(void **state) {
    (void)state;
    char *filler = memory_allocate(10001, 1); /* longer than what is read at a time */
    memset(filler, 'x', 10000);
    for (int whole = 0; whole < 2; whole++) {
        char *text = memory_format("%s%s", whole ? "{\"event\":\"end\"}\n" : "", filler);
        write_text("metrics.jsonl", text);
        metrics_close(open_metrics("."));
        expect_file("metrics.jsonl", whole ? "{\"event\":\"end\"}\n" : "");
        free(text);
    }
    free(filler);
}

/* A line that does not fit leaves the file as it was. */
static void a_line_is_whole_or_absent(void **state) {
    (void)state;
    error e = {0};
    struct rlimit before, small = {.rlim_cur = sizeof STEP_12 + 10, .rlim_max = RLIM_INFINITY};
    metrics *m = open_metrics(".");
    assert_true(metrics_step(m, &example, &e));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const bool written = metrics_step(m, &example, &e);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_false(written);
    assert_string_equal(e.message, "./metrics.jsonl: cannot write: File too large");
    metrics_close(m);
    expect_file("metrics.jsonl", STEP_12);
}

static void folders_that_cannot_be_used(void **state) {
    (void)state;
    write_text("file", "");
    expect_open_error("file", "[output] folder = file: cannot make the folder: Not a directory");
    expect_open_error("file/out", "[output] folder = file/out: cannot make the folder: Not a directory");
    assert_int_equal(mkdir("out", 0777), 0);
    assert_int_equal(mkdir("out/metrics.jsonl", 0777), 0);
    expect_open_error("out", "out/metrics.jsonl: cannot open for writing: Is a directory");
    expect_open_error("/proc/out", "[output] folder = /proc/out: cannot make the folder: No such file or directory");
    if (geteuid() == 0) {
        print_message("folders without permission: not tried as root\n");
        return;
    }
    assert_int_equal(mkdir("closed", 0555), 0);
    expect_open_error("closed", "[output] folder = closed: cannot write there: Permission denied");
    expect_open_error("closed/out", "[output] folder = closed/out: cannot make the folder: Permission denied");
}

static void a_full_disk_is_told(void **state) {
    (void)state;
    error e = {0};
    assert_int_equal(symlink("/dev/full", "metrics.jsonl"), 0);
    metrics *m = open_metrics(".");
    assert_false(metrics_step(m, &example, &e));
    assert_string_equal(e.message, "./metrics.jsonl: cannot write: No space left on device");
    assert_true(e.own);
    metrics_close(m);
}

/* ---- progress ---- */

static void expect_and_free(char *text, const char *expected) {
    assert_string_equal(text, expected);
    free(text);
}

static void step_lines(void **state) {
    (void)state;
    step_report report = example;
    expect_and_free(progress_line(&report, 600, 83),
                    "step 12/600  loss 3.4127  norm 1.23  rate 3.0e-04  12,345 tokens/s  time left 1:23");
    report.tokens_per_second = 999.4;
    report.loss = NAN;
    expect_and_free(progress_line(&report, 600, 2 * 3600 + 65),
                    "step 12/600  loss nan  norm 1.23  rate 3.0e-04  999 tokens/s  time left 2:01:05");
    report.tokens_per_second = 1234567;
    report.loss = 1;
    expect_and_free(progress_line(&report, 12, 0),
                    "step 12/12  loss 1.0000  norm 1.23  rate 3.0e-04  1,234,567 tokens/s  time left 0:00");
    expect_and_free(progress_line(&report, 12, -1),
                    "step 12/12  loss 1.0000  norm 1.23  rate 3.0e-04  1,234,567 tokens/s  time left -");
}

static void bars_fit_the_terminal(void **state) {
    (void)state;
    step_report report = example;
    report.step = 300;
    report.mfu = 0.4123;
    expect_and_free(progress_bar(&report, 600, 83, 100),
                    "[================>               ] "
                    "300/600  loss 3.4127  12,345 tokens/s  MFU 41.2%  time left 1:23");
    report.mfu = NAN;
    expect_and_free(progress_bar(&report, 600, 83, 70),
                    "[======>      ] 300/600  loss 3.4127  12,345 tokens/s  time left 1:23");
    report.step = 600;
    expect_and_free(progress_bar(&report, 600, 0, 70),
                    "[=============] 600/600  loss 3.4127  12,345 tokens/s  time left 0:00");
    expect_and_free(progress_bar(&report, 600, 0, 60), "600/600  loss 3.4127  12,345 tokens/s  time left 0:00");
    expect_and_free(progress_bar(&report, 600, 0, 30), "600/600  loss 3.4127  12,345 ");
    for (int columns = 1; columns < 200; columns++) {
        char *text = progress_bar(&report, 600, 0, columns);
        assert_in_range(strlen(text), 0, columns - 1);
        free(text);
    }
}

static void a_plain_stream_gets_lines(void **state) {
    (void)state;
    FILE *out = fopen("output", "w");
    step_report report = example;
    progress *p = progress_create(out, 1, 25, 10);
    for (report.step = 1; report.step <= 25; report.step++)
        progress_step(p, &report);
    progress_note(p, "validation loss %.4f", 2.5);
    progress_destroy(p);
    fclose(out);
    FILE *in = fopen("output", "r");
    char line[256];
    static const char *const starts[] = {"step 1/25  loss ", "step 10/25  loss ", "step 20/25  loss ",
                                         "step 25/25  loss ", "validation loss 2.5000\n"};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        assert_non_null(fgets(line, sizeof line, in));
        assert_memory_equal(line, starts[i], strlen(starts[i]));
        assert_null(strchr(line, '\r'));
    }
    assert_null(fgets(line, sizeof line, in));
    fclose(in);
}

static void a_terminal_gets_a_bar(void **state) {
    (void)state;
    int master, slave;
    struct winsize size = {.ws_row = 24, .ws_col = 72};
    assert_int_equal(openpty(&master, &slave, NULL, NULL, &size), 0);
    int terminal = terminal_open(slave);
    assert_true(terminal >= 0);
    assert_int_equal(terminal_columns(terminal), 72);
    close(terminal);
    FILE *out = fdopen(slave, "w");
    step_report report = example;
    report.step = 1;
    progress *p = progress_create(out, 1, 2, 1000);
    progress_step(p, &report);
    progress_note(p, "saved");
    report.step = 2;
    progress_step(p, &report);
    progress_destroy(p);
    char text[1024];
    ssize_t length = 0, got; /* a terminal hands out what it has, in pieces */
    while (length < (ssize_t)sizeof text - 1 &&
           (length == 0 || text[length - 1] != '\n' || strstr(text, "2/2") == NULL)) {
        got = read(master, text + length, sizeof text - 1 - (size_t)length);
        assert_true(got > 0);
        length += got;
        text[length] = '\0';
    }
    fclose(out);
    close(master);
    const char *first = strstr(text, "\r["), *note = strstr(text, "\r\033[Ksaved\r\n"),
               *last = strstr(text, "] 2/2  loss");
    assert_non_null(first);
    assert_non_null(strstr(text, "] 1/2  loss 3.4127  12,345 tokens/s  time left "));
    assert_true(note > first && last > note);
    assert_string_equal(text + length - 2, "\r\n");
}

int main(void) {
#define FOLDER_TEST(test) cmocka_unit_test_setup_teardown(test, enter_folder, leave_folder)
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(events_are_lines_of_json),
        FOLDER_TEST(ends_have_reasons),
        FOLDER_TEST(what_is_not_finite_is_null),
        FOLDER_TEST(numbers_keep_all_their_bits),
        FOLDER_TEST(runs_append),
        FOLDER_TEST(half_a_line_is_dropped),
        FOLDER_TEST(a_line_is_whole_or_absent),
        FOLDER_TEST(folders_that_cannot_be_used),
        FOLDER_TEST(a_full_disk_is_told),
        cmocka_unit_test(step_lines),
        cmocka_unit_test(bars_fit_the_terminal),
        FOLDER_TEST(a_plain_stream_gets_lines),
        cmocka_unit_test(a_terminal_gets_a_bar),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
