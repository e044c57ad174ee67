/* Files of training data: what is accepted, and what each mistake is answered with. */
#include "engine/checked.h"
#include "support/folder.h"
#include "support/small_data.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* The stream of `paths` is n tokens; expected NULL: 0, 1, 2 ... */
static void expect_stream(const char *const *paths, int32_t count, token_format format, int64_t n,
                          const uint32_t *expected) {
    error e = {0};
    token_stream s;
    token_stream_open("[data] train", paths, count, format, &s, &e);
    assert_string_equal(e.message, "");
    assert_int_equal(s.tokens, n);
    int32_t *tokens = memory_allocate((size_t)n, sizeof *tokens);
    assert_true(token_stream_read(&s, 0, n, tokens, &e));
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(tokens[i], expected ? (int64_t)expected[i] : i);
    for (int64_t first = 0; first < n; first++) { /* parts of it, across the borders of files */
        int64_t part = minimum(5, n - first);
        int32_t few[5];
        assert_true(token_stream_read(&s, first, part, few, &e));
        assert_memory_equal(few, tokens + first, (size_t)part * sizeof *few);
    }
    free(tokens);
    token_stream_close(&s);
}

/* ---- formats ---- */

static void text_is_bytes(void **state) {
    (void)state;
    test_file_write("text", "a\0\xff\n", 4);
    const char *path[] = {"text"};
    expect_stream(path, 1, TOKEN_FORMAT_AUTO, 4, (const uint32_t[]){97, 0, 255, 10});
    test_text_write("short", "ab"); /* less than a magic */
    path[0] = "short";
    expect_stream(path, 1, TOKEN_FORMAT_AUTO, 2, (const uint32_t[]){97, 98});
}

static void header_files_of_both_widths_and_versions(void **state) {
    (void)state;
    const uint16_t narrow[] = {0, 1, 65534, 65535, 7};
    const uint32_t wide[] = {5, 65536, 2147483646, 1};
    const int32_t versions[] = {1, 7};
    for (int i = 0; i < 2; i++) {
        token_file_write("narrow", 20240520, versions[i], 5, narrow, sizeof narrow);
        token_file_write("wide", 20240801, versions[i], 4, wide, sizeof wide);
        const char *paths[] = {"narrow", "wide"};
        expect_stream(paths, 1, TOKEN_FORMAT_AUTO, 5, (const uint32_t[]){0, 1, 65534, 65535, 7});
        expect_stream(paths + 1, 1, TOKEN_FORMAT_AUTO, 4, wide);
        expect_stream(paths, 2, TOKEN_FORMAT_AUTO, 9,
                      (const uint32_t[]){0, 1, 65534, 65535, 7, 5, 65536, 2147483646, 1});
    }
}

static void headerless_files(void **state) {
    (void)state;
    const uint16_t narrow[] = {65535, 1, 2};
    const uint32_t wide[] = {2147483646, 1};
    test_file_write("narrow", narrow, sizeof narrow);
    test_file_write("wide", wide, sizeof wide);
    const char *paths[] = {"narrow", "wide"};
    expect_stream(paths, 1, TOKEN_FORMAT_TOKENS16, 3, (const uint32_t[]){65535, 1, 2});
    expect_stream(paths + 1, 1, TOKEN_FORMAT_TOKENS32, 2, wide);
}

static void forced_text_takes_any_bytes(void **state) {
    (void)state;
    const uint16_t token = 258;
    token_file_write("tokens", 20240520, 1, 1, &token, sizeof token);
    const char *path[] = {"tokens"};
    error e = {0};
    token_stream s;
    assert_true(token_stream_open("[data] train", path, 1, TOKEN_FORMAT_TEXT, &s, &e));
    assert_int_equal(s.tokens, 1026);
    token_stream_close(&s);
}

static void globs_are_sorted_and_lists_keep_their_order(void **state) {
    (void)state;
    token_file_write_counting("part10", 4, 3); /* byte order: before part2 */
    token_file_write_counting("part2", 7, 2);
    token_file_write_counting("part1", 2, 2);
    token_file_write_counting("a[1]", 0, 2); /* an existing path is not a pattern */
    const char *const paths[] = {"a[1]", "part*"};
    expect_stream(paths, 2, TOKEN_FORMAT_AUTO, 9, NULL);
    const char *const turned[] = {"part2", "part1"};
    expect_stream(turned, 2, TOKEN_FORMAT_AUTO, 4, (const uint32_t[]){7, 8, 2, 3});
}

/* ---- mistakes ---- */

static void files_that_cannot_be_opened(void **state) {
    (void)state;
    assert_int_equal(mkdir("dir", 0755), 0);
    assert_int_equal(mkfifo("pipe", 0644), 0);
    test_text_write("empty", "");
    small_data_path_refused("none.txt",
                            "[data] train: none.txt: No such file or directory; relative paths start at the "
                            "directory that the program is started in");
    small_data_path_refused("none*", "[data] train: none*: matches no file");
    small_data_path_refused("dir", "[data] train: dir: is a directory; name the files in it, for example as dir/*");
    small_data_path_refused("pipe", "[data] train: pipe: is not a regular file");
    small_data_path_refused("empty", "[data] train: empty: is empty");
    data_settings settings = small_data_settings("empty");
    settings.train_count = 0;
    small_data_refused(&settings, EXIT_DATA, "[data] train: no files given");
}

static void unreadable_file(void **state) {
    (void)state;
    test_text_write("closed", "text");
    assert_int_equal(chmod(".", 0755) + chmod("closed", 0), 0);
    bool root = geteuid() == 0;
    if (root) /* root may read everything: become somebody else meanwhile */
        assert_int_equal(seteuid(65534), 0);
    error e = {0};
    data *d = NULL;
    data_settings settings = small_data_settings("closed");
    bool opened = data_open(&settings, &d, &e);
    if (root)
        assert_int_equal(seteuid(0), 0);
    data_close(d);
    assert_false(opened);
    assert_int_equal(e.code, EXIT_DATA);
    assert_string_equal(e.message, "[data] train: closed: cannot open: Permission denied");
}

static void damaged_token_files(void **state) {
    (void)state;
    const uint16_t tokens[8] = {0};
    token_file_write("truncated", 20240520, 1, 9, tokens, sizeof tokens);
    small_data_path_refused("truncated",
                            "[data] train: truncated: has 1040 bytes, but its header counts 9 tokens of 2 bytes, "
                            "which makes 1042; the file is truncated or damaged");
    token_file_write("longer", 20240801, 7, 3, tokens, sizeof tokens);
    small_data_path_refused("longer",
                            "[data] train: longer: has 1040 bytes, but its header counts 3 tokens of 4 bytes, "
                            "which makes 1036; the file is truncated or damaged");
    token_file_write("negative", 20240520, 1, -8, tokens, sizeof tokens);
    small_data_path_refused("negative",
                            "[data] train: negative: has 1040 bytes, but its header counts -8 tokens of 2 bytes, "
                            "which makes 1008; the file is truncated or damaged");
    token_file_write("version", 20240520, 2, 8, tokens, sizeof tokens);
    small_data_path_refused("version", "[data] train: version: token file of version 2; versions 1 and 7 can be read");
    token_file_write("none", 20240520, 1, 0, tokens, 0);
    small_data_path_refused("none", "[data] train: none: holds no tokens");
    token_file_write("magic", 20240521, 1, 8, tokens, sizeof tokens);
    small_data_path_refused("magic",
                            "[data] train: magic: neither text nor a token file: its header starts with 20240521 "
                            "where 20240520 (16 bits) or 20240801 (32 bits) is expected; for files without a header "
                            "set [data] format");
    test_file_write("stub", (const int32_t[]){20240520, 1}, 8);
    small_data_path_refused("stub",
                            "[data] train: stub: starts as a token file (20240520), but has 8 bytes where the header "
                            "alone has 1024");
}

static void headerless_mistakes(void **state) {
    (void)state;
    const uint16_t tokens[8] = {0};
    test_file_write("odd", tokens, 15);
    data_settings settings = small_data_settings("odd");
    settings.format = TOKEN_FORMAT_TOKENS16;
    small_data_refused(&settings, EXIT_DATA,
                       "[data] train: odd: has 15 bytes, no multiple of the 2 bytes of a token in tokens16");
    settings.format = TOKEN_FORMAT_TOKENS32;
    small_data_refused(&settings, EXIT_DATA,
                       "[data] train: odd: has 15 bytes, no multiple of the 4 bytes of a token in tokens32");
    token_file_write("header", 20240801, 1, 4, tokens, sizeof tokens);
    settings = small_data_settings("header");
    settings.format = TOKEN_FORMAT_TOKENS32;
    small_data_refused(
        &settings, EXIT_DATA,
        "[data] train: header: has a header (20240801), but [data] format = tokens32 is for files without one; "
        "use auto");
}

static void too_short_for_a_window(void **state) {
    (void)state;
    test_text_write("four", "abcd");
    test_text_write("more", "abcdefghij");
    small_data_path_refused("four", "[data] train: four: 4 tokens; a window of [train] sequence = 4 needs 5");
    const char *const both[] = {"four", "more"};
    data_settings settings = small_data_settings("more");
    settings.train = both;
    settings.train_count = 2;
    settings.sequence = 14;
    small_data_refused(&settings, EXIT_DATA,
                       "[data] train: 2 files: 14 tokens; a window of [train] sequence = 14 needs 15");
    settings = small_data_settings("more");
    settings.validation_fraction = 0.75;
    small_data_refused(&settings, EXIT_DATA,
                       "[data] train: more: without what validation_fraction holds out, 3 tokens; a window of [train] "
                       "sequence = 4 needs 5");
    settings.validation_fraction = 0.25;
    small_data_refused(
        &settings, EXIT_DATA,
        "[data] train: more: validation_fraction holds out 2 tokens; a window of [train] sequence = 4 needs 5");
    settings.validation_fraction = 0;
    settings.validation = both;
    settings.validation_count = 1;
    small_data_refused(&settings, EXIT_DATA,
                       "[data] validation: four: 4 tokens; a window of [train] sequence = 4 needs 5");
}

static void sources_that_do_not_fit_together(void **state) {
    (void)state;
    test_text_write("text", "abcdefgh");
    token_file_write_counting("tokens", 0, 8);
    const char *const both[] = {"text", "tokens"};
    data_settings settings = small_data_settings("text");
    settings.train = both;
    settings.train_count = 2;
    small_data_refused(&settings, EXIT_DATA,
                       "[data] train: text is text, but tokens is a token file; one stream is either text or tokens");
    settings.train_count = 1;
    settings.validation = both + 1;
    settings.validation_count = 1;
    small_data_refused(&settings, EXIT_DATA,
                       "[data] train is text, but validation is token files; both must be the same");
    settings.validation_fraction = 0.5;
    small_data_refused(&settings, EXIT_USAGE, "[data] validation and validation_fraction are both set; use one");
}

static void tokens_outside_the_vocabulary(void **state) {
    (void)state;
    test_text_write("text", "abcdz\xff");
    data_settings settings = small_data_settings("text");
    settings.vocabulary = 101;
    small_data_refused(&settings, EXIT_DATA, "[data] train: text: byte 4 is 122, outside the vocabulary of 101");
    settings.vocabulary = 255;
    small_data_refused(&settings, EXIT_DATA, "[data] train: text: byte 5 is 255, outside the vocabulary of 255");

    token_file_write_counting("tokens", 0, 20);
    token_file_write_counting("large", 65530, 6);
    const char *const both[] = {"tokens", "large"};
    settings = small_data_settings("tokens");
    settings.train = both;
    settings.train_count = 2;
    settings.vocabulary = 65535;
    small_data_refused(&settings, EXIT_DATA, "[data] train: large: token 5 is 65535, outside the vocabulary of 65535");
    settings.vocabulary = 65536;
    data_close(small_data_open(&settings));
    settings.vocabulary = 19;
    settings.train_count = 1;
    small_data_refused(&settings, EXIT_DATA, "[data] train: tokens: token 19 is 19, outside the vocabulary of 19");

    const uint32_t wide[] = {1, 2, 3, 4, 4294967295, 6};
    token_file_write("wide", 20240801, 1, 6, wide, sizeof wide);
    settings = small_data_settings("wide");
    settings.vocabulary = INT32_MAX;
    small_data_refused(&settings, EXIT_DATA,
                       "[data] train: wide: token 4 is 4294967295, outside the vocabulary of 2147483647");

    settings = small_data_settings("text");
    settings.validation = both + 1;
    settings.validation_count = 1;
    settings.format = TOKEN_FORMAT_TEXT;
    settings.vocabulary = 200;
    test_text_write("text", "abcdefgh");
    small_data_refused(&settings, EXIT_DATA, "[data] validation: large: byte 1 is 216, outside the vocabulary of 200");
}

/* The scan goes in pieces of 4 MiB: a fault in the second, with others after it. */
static void token_outside_a_large_file(void **state) {
    (void)state;
    enum { COUNT = 3000000, BAD = 2700001 };
    uint16_t *tokens = memory_allocate(COUNT, sizeof *tokens);
    tokens[BAD] = 1000;
    tokens[COUNT - 1] = 2000;
    test_file_write("large", tokens, COUNT * sizeof *tokens);
    free(tokens);
    data_settings settings = small_data_settings("large");
    settings.format = TOKEN_FORMAT_TOKENS16;
    settings.vocabulary = 1000;
    small_data_refused(&settings, EXIT_DATA,
                       "[data] train: large: token 2700001 is 1000, outside the vocabulary of 1000");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_IN_FOLDER(text_is_bytes),
        TEST_IN_FOLDER(header_files_of_both_widths_and_versions),
        TEST_IN_FOLDER(headerless_files),
        TEST_IN_FOLDER(forced_text_takes_any_bytes),
        TEST_IN_FOLDER(globs_are_sorted_and_lists_keep_their_order),
        TEST_IN_FOLDER(files_that_cannot_be_opened),
        TEST_IN_FOLDER(unreadable_file),
        TEST_IN_FOLDER(damaged_token_files),
        TEST_IN_FOLDER(headerless_mistakes),
        TEST_IN_FOLDER(too_short_for_a_window),
        TEST_IN_FOLDER(sources_that_do_not_fit_together),
        TEST_IN_FOLDER(tokens_outside_the_vocabulary),
        TEST_IN_FOLDER(token_outside_a_large_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
