/* Training data: what files are accepted, what each mistake is answered with, and which windows a step takes. */
#include "engine/checked.h"
#include "engine/rng.h"
#include "launch/data.h"
#include "launch/token_order.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include <cmocka.h>

/* ---- files: every test starts in an empty folder of its own ---- */

static char folder[] = "/tmp/test_data_XXXXXX";

static int enter_folder(void **state) {
    (void)state;
    strcpy(folder + sizeof folder - 7, "XXXXXX");
    return mkdtemp(folder) == NULL || chmod(folder, 0755) != 0 || chdir(folder) != 0;
}

static int leave_folder(void **state) {
    (void)state;
    char *command = memory_format("rm -rf %s", folder);
    int result = chdir("/") != 0 || system(command) != 0;
    free(command);
    return result;
}

static void write_file(const char *path, const void *bytes, size_t count) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, count, f), count);
    assert_int_equal(fclose(f), 0);
}

static void write_text(const char *path, const char *text) {
    write_file(path, text, strlen(text));
}

/* A token file with a header; `bytes` of tokens follow it, whatever the header counts. */
static void write_header_file(const char *path, int32_t magic, int32_t version, int32_t count, const void *tokens,
                              size_t bytes) {
    int32_t header[256] = {magic, version, count};
    char *all = memory_allocate(1024 + bytes, 1);
    memcpy(all, header, 1024);
    memcpy(all + 1024, tokens, bytes);
    write_file(path, all, 1024 + bytes);
    free(all);
}

/* n tokens 0, 1, 2 ... of 16 bits, with a header. */
static void write_counting_file(const char *path, int32_t first, int32_t n) {
    uint16_t *tokens = memory_allocate((size_t)n, sizeof *tokens);
    for (int32_t i = 0; i < n; i++)
        tokens[i] = (uint16_t)(first + i);
    write_header_file(path, 20240520, 1, n, tokens, (size_t)n * sizeof *tokens);
    free(tokens);
}

/* ---- settings ---- */

static const char *one_path[1];

/* Small batches of one file (or glob), vocabulary large enough for anything of 16 bits. */
static data_settings settings_for(const char *path) {
    one_path[0] = path;
    return (data_settings){.train = one_path,
                           .train_count = 1,
                           .format = TOKEN_FORMAT_AUTO,
                           .order = DATA_SEQUENTIAL,
                           .seed = 1,
                           .vocabulary = 65536,
                           .sequence = 4,
                           .global_batch = 2,
                           .micro_batch = 1,
                           .validation_batches = 8};
}

static data *open_data(const data_settings *settings) {
    error e = {0};
    data *d = NULL;
    data_open(settings, &d, &e);
    assert_string_equal(e.message, "");
    return d;
}

static void expect_error(const data_settings *settings, int code, const char *message) {
    error e = {0};
    data *d = NULL;
    if (data_open(settings, &d, &e))
        data_check_tokens(d, &e);
    data_close(d);
    assert_string_equal(e.message, message);
    assert_int_equal(e.code, code);
    assert_false(e.own);
}

static void expect_path_error(const char *path, const char *message) {
    data_settings settings = settings_for(path);
    expect_error(&settings, EXIT_DATA, message);
}

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
    write_file("text", "a\0\xff\n", 4);
    const char *path[] = {"text"};
    expect_stream(path, 1, TOKEN_FORMAT_AUTO, 4, (const uint32_t[]){97, 0, 255, 10});
    write_text("short", "ab"); /* less than a magic */
    path[0] = "short";
    expect_stream(path, 1, TOKEN_FORMAT_AUTO, 2, (const uint32_t[]){97, 98});
}

static void header_files_of_both_widths_and_versions(void **state) {
    (void)state;
    const uint16_t narrow[] = {0, 1, 65534, 65535, 7};
    const uint32_t wide[] = {5, 65536, 2147483646, 1};
    const int32_t versions[] = {1, 7};
    for (int i = 0; i < 2; i++) {
        write_header_file("narrow", 20240520, versions[i], 5, narrow, sizeof narrow);
        write_header_file("wide", 20240801, versions[i], 4, wide, sizeof wide);
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
    write_file("narrow", narrow, sizeof narrow);
    write_file("wide", wide, sizeof wide);
    const char *paths[] = {"narrow", "wide"};
    expect_stream(paths, 1, TOKEN_FORMAT_TOKENS16, 3, (const uint32_t[]){65535, 1, 2});
    expect_stream(paths + 1, 1, TOKEN_FORMAT_TOKENS32, 2, wide);
}

static void forced_text_takes_any_bytes(void **state) {
    (void)state;
    const uint16_t token = 258;
    write_header_file("tokens", 20240520, 1, 1, &token, sizeof token);
    const char *path[] = {"tokens"};
    error e = {0};
    token_stream s;
    assert_true(token_stream_open("[data] train", path, 1, TOKEN_FORMAT_TEXT, &s, &e));
    assert_int_equal(s.tokens, 1026);
    token_stream_close(&s);
}

static void globs_are_sorted_and_lists_keep_their_order(void **state) {
    (void)state;
    write_counting_file("part10", 4, 3); /* byte order: before part2 */
    write_counting_file("part2", 7, 2);
    write_counting_file("part1", 2, 2);
    write_counting_file("a[1]", 0, 2); /* an existing path is not a pattern */
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
    write_text("empty", "");
    expect_path_error("none.txt", "[data] train: none.txt: No such file or directory; relative paths start at the "
                                  "directory that the program is started in");
    expect_path_error("none*", "[data] train: none*: matches no file");
    expect_path_error("dir", "[data] train: dir: is a directory; name the files in it, for example as dir/*");
    expect_path_error("pipe", "[data] train: pipe: is not a regular file");
    expect_path_error("empty", "[data] train: empty: is empty");
    data_settings settings = settings_for("empty");
    settings.train_count = 0;
    expect_error(&settings, EXIT_DATA, "[data] train: no files given");
}

static void unreadable_file(void **state) {
    (void)state;
    write_text("closed", "text");
    assert_int_equal(chmod("closed", 0), 0);
    bool root = geteuid() == 0;
    if (root) /* root may read everything: become somebody else meanwhile */
        assert_int_equal(seteuid(65534), 0);
    error e = {0};
    data *d = NULL;
    data_settings settings = settings_for("closed");
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
    write_header_file("truncated", 20240520, 1, 9, tokens, sizeof tokens);
    expect_path_error("truncated",
                      "[data] train: truncated: has 1040 bytes, but its header counts 9 tokens of 2 bytes, "
                      "which makes 1042; the file is truncated or damaged");
    write_header_file("longer", 20240801, 7, 3, tokens, sizeof tokens);
    expect_path_error("longer", "[data] train: longer: has 1040 bytes, but its header counts 3 tokens of 4 bytes, "
                                "which makes 1036; the file is truncated or damaged");
    write_header_file("negative", 20240520, 1, -8, tokens, sizeof tokens);
    expect_path_error("negative", "[data] train: negative: has 1040 bytes, but its header counts -8 tokens of 2 bytes, "
                                  "which makes 1008; the file is truncated or damaged");
    write_header_file("version", 20240520, 2, 8, tokens, sizeof tokens);
    expect_path_error("version", "[data] train: version: token file of version 2; versions 1 and 7 can be read");
    write_header_file("none", 20240520, 1, 0, tokens, 0);
    expect_path_error("none", "[data] train: none: holds no tokens");
    write_header_file("magic", 20240521, 1, 8, tokens, sizeof tokens);
    expect_path_error("magic", "[data] train: magic: neither text nor a token file: its header starts with 20240521 "
                               "where 20240520 (16 bits) or 20240801 (32 bits) is expected; for files without a header "
                               "set [data] format");
    write_file("stub", (const int32_t[]){20240520, 1}, 8);
    expect_path_error("stub", "[data] train: stub: starts as a token file (20240520), but has 8 bytes where the header "
                              "alone has 1024");
}

static void headerless_mistakes(void **state) {
    (void)state;
    const uint16_t tokens[8] = {0};
    write_file("odd", tokens, 15);
    data_settings settings = settings_for("odd");
    settings.format = TOKEN_FORMAT_TOKENS16;
    expect_error(&settings, EXIT_DATA,
                 "[data] train: odd: has 15 bytes, no multiple of the 2 bytes of a token in tokens16");
    settings.format = TOKEN_FORMAT_TOKENS32;
    expect_error(&settings, EXIT_DATA,
                 "[data] train: odd: has 15 bytes, no multiple of the 4 bytes of a token in tokens32");
    write_header_file("header", 20240801, 1, 4, tokens, sizeof tokens);
    settings = settings_for("header");
    settings.format = TOKEN_FORMAT_TOKENS32;
    expect_error(
        &settings, EXIT_DATA,
        "[data] train: header: has a header (20240801), but [data] format = tokens32 is for files without one; "
        "use auto");
}

static void too_short_for_a_window(void **state) {
    (void)state;
    write_text("four", "abcd");
    write_text("more", "abcdefghij");
    expect_path_error("four", "[data] train: four: 4 tokens; a window of [train] sequence = 4 needs 5");
    const char *const both[] = {"four", "more"};
    data_settings settings = settings_for("more");
    settings.train = both;
    settings.train_count = 2;
    settings.sequence = 14;
    expect_error(&settings, EXIT_DATA, "[data] train: 2 files: 14 tokens; a window of [train] sequence = 14 needs 15");
    settings = settings_for("more");
    settings.validation_fraction = 0.75;
    expect_error(&settings, EXIT_DATA,
                 "[data] train: more: without what validation_fraction holds out, 3 tokens; a window of [train] "
                 "sequence = 4 needs 5");
    settings.validation_fraction = 0.25;
    expect_error(
        &settings, EXIT_DATA,
        "[data] train: more: validation_fraction holds out 2 tokens; a window of [train] sequence = 4 needs 5");
    settings.validation_fraction = 0;
    settings.validation = both;
    settings.validation_count = 1;
    expect_error(&settings, EXIT_DATA, "[data] validation: four: 4 tokens; a window of [train] sequence = 4 needs 5");
}

static void sources_that_do_not_fit_together(void **state) {
    (void)state;
    write_text("text", "abcdefgh");
    write_counting_file("tokens", 0, 8);
    const char *const both[] = {"text", "tokens"};
    data_settings settings = settings_for("text");
    settings.train = both;
    settings.train_count = 2;
    expect_error(&settings, EXIT_DATA,
                 "[data] train: text is text, but tokens is a token file; one stream is either text or tokens");
    settings.train_count = 1;
    settings.validation = both + 1;
    settings.validation_count = 1;
    expect_error(&settings, EXIT_DATA, "[data] train is text, but validation is token files; both must be the same");
    settings.validation_fraction = 0.5;
    expect_error(&settings, EXIT_USAGE, "[data] validation and validation_fraction are both set; use one");
}

static void tokens_outside_the_vocabulary(void **state) {
    (void)state;
    write_text("text", "abcdz\xff");
    data_settings settings = settings_for("text");
    settings.vocabulary = 101;
    expect_error(&settings, EXIT_DATA, "[data] train: text: byte 4 is 122, outside the vocabulary of 101");
    settings.vocabulary = 255;
    expect_error(&settings, EXIT_DATA, "[data] train: text: byte 5 is 255, outside the vocabulary of 255");

    write_counting_file("tokens", 0, 20);
    write_counting_file("large", 65530, 6);
    const char *const both[] = {"tokens", "large"};
    settings = settings_for("tokens");
    settings.train = both;
    settings.train_count = 2;
    settings.vocabulary = 65535;
    expect_error(&settings, EXIT_DATA, "[data] train: large: token 5 is 65535, outside the vocabulary of 65535");
    settings.vocabulary = 65536;
    data_close(open_data(&settings));
    settings.vocabulary = 19;
    settings.train_count = 1;
    expect_error(&settings, EXIT_DATA, "[data] train: tokens: token 19 is 19, outside the vocabulary of 19");

    const uint32_t wide[] = {1, 2, 3, 4, 4294967295, 6};
    write_header_file("wide", 20240801, 1, 6, wide, sizeof wide);
    settings = settings_for("wide");
    settings.vocabulary = INT32_MAX;
    expect_error(&settings, EXIT_DATA,
                 "[data] train: wide: token 4 is 4294967295, outside the vocabulary of 2147483647");

    settings = settings_for("text");
    settings.validation = both + 1;
    settings.validation_count = 1;
    settings.format = TOKEN_FORMAT_TEXT;
    settings.vocabulary = 200;
    write_text("text", "abcdefgh");
    expect_error(&settings, EXIT_DATA, "[data] validation: large: byte 1 is 216, outside the vocabulary of 200");
}

/* The scan goes in pieces of 4 MiB: a fault in the second, with others after it. */
static void token_outside_a_large_file(void **state) {
    (void)state;
    enum { COUNT = 3000000, BAD = 2700001 };
    uint16_t *tokens = memory_allocate(COUNT, sizeof *tokens);
    tokens[BAD] = 1000;
    tokens[COUNT - 1] = 2000;
    write_file("large", tokens, COUNT * sizeof *tokens);
    free(tokens);
    data_settings settings = settings_for("large");
    settings.format = TOKEN_FORMAT_TOKENS16;
    settings.vocabulary = 1000;
    expect_error(&settings, EXIT_DATA, "[data] train: large: token 2700001 is 1000, outside the vocabulary of 1000");
}

/* ---- windows ---- */

enum { MOST = 4096 };

/* The first tokens of the windows that steps first .. first + steps take, in order, of a file that counts 0, 1, 2 ...;
 * checks each window whole. Every rank's micro-batches are asked for as training does. */
static int64_t windows_taken(data *d, const data_settings *s, int ranks, int64_t first, int64_t steps, int32_t *taken) {
    int64_t per_pass = s->micro_batch * ranks, passes = s->global_batch / per_pass, count = 0;
    assert_int_equal(passes * per_pass, s->global_batch);
    int32_t tokens[MOST], targets[MOST], order[MOST];
    assert_true(s->micro_batch * s->sequence <= MOST && steps * s->global_batch <= MOST);
    for (int64_t step = first; step < first + steps; step++)
        for (int64_t pass = 0; pass < passes; pass++)
            for (int rank = 0; rank < ranks; rank++) {
                error e = {0};
                assert_true(
                    data_training_batch(d, step, data_micro_batch(pass, rank, ranks), tokens, targets, order, &e));
                for (int64_t i = 0; i < s->micro_batch; i++) {
                    const int32_t *window = tokens + i * s->sequence, *after = targets + i * s->sequence;
                    for (int64_t t = 0; t < s->sequence; t++) {
                        assert_int_equal(window[t], window[0] + t);
                        assert_int_equal(after[t], window[0] + t + 1);
                    }
                    taken[count++] = window[0];
                }
            }
    return count;
}

static void sequential_windows_wrap(void **state) {
    (void)state;
    write_counting_file("tokens", 0, 16); /* W = floor(15 / 4) = 3, the last 3 tokens in no window */
    data_settings settings = settings_for("tokens");
    data *d = open_data(&settings);
    data_facts facts = data_describe(d);
    assert_int_equal(facts.tokens, 16);
    assert_int_equal(facts.windows, 3);
    assert_int_equal(facts.validation_windows, 0);
    assert_int_equal(facts.validation_batches, 0);
    assert_int_equal(data_training_counted(d), 8);
    int32_t taken[10];
    assert_int_equal(windows_taken(d, &settings, 1, 0, 5, taken), 10);
    for (int i = 0; i < 10; i++)
        assert_int_equal(taken[i], i % 3 * 4);
    data_close(d);
}

static void windows_by_length(void **state) {
    (void)state;
    for (int32_t n = 5; n <= 40; n++) {
        write_counting_file("tokens", 0, n);
        data_settings settings = settings_for("tokens");
        data *d = open_data(&settings);
        assert_int_equal(data_describe(d).windows, (n - 1) / 4);
        data_close(d);
    }
}

static void one_window_is_taken_again_and_again(void **state) {
    (void)state;
    write_counting_file("tokens", 0, 5);
    data_settings settings = settings_for("tokens");
    settings.order = DATA_SHUFFLED;
    data *d = open_data(&settings);
    int32_t taken[6];
    assert_int_equal(windows_taken(d, &settings, 2, 0, 3, taken), 6);
    for (int i = 0; i < 6; i++)
        assert_int_equal(taken[i], 0);
    data_close(d);
}

static void shuffled_epochs_hold_each_window_once(void **state) {
    (void)state;
    enum { WINDOWS = 23, EPOCHS = 6 }; /* 23 is prime: batches of 6 span epochs */
    write_counting_file("tokens", 0, WINDOWS * 4 + 3);
    data_settings settings = settings_for("tokens");
    settings.order = DATA_SHUFFLED;
    settings.global_batch = 6;
    data *d = open_data(&settings);
    assert_int_equal(data_describe(d).windows, WINDOWS);
    int32_t taken[WINDOWS * EPOCHS];
    assert_int_equal(windows_taken(d, &settings, 2, 0, WINDOWS * EPOCHS / 6, taken), WINDOWS * EPOCHS);
    int unmoved = 0, repeated = 0;
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        bool seen[WINDOWS] = {false};
        for (int i = 0; i < WINDOWS; i++) {
            int32_t window = taken[epoch * WINDOWS + i] / 4;
            assert_false(seen[window]);
            seen[window] = true;
            unmoved += window == i;
            repeated += epoch > 0 && taken[epoch * WINDOWS + i] == taken[(epoch - 1) * WINDOWS + i];
        }
    }
    assert_in_range(unmoved, 0, 3 * EPOCHS);  /* each epoch is mixed (1 of 23 stays on average) ... */
    assert_in_range(repeated, 0, 3 * EPOCHS); /* ... and in its own way */
    data_close(d);
}

static void same_windows_for_any_ranks_and_micro_batch(void **state) {
    (void)state;
    write_counting_file("tokens", 0, 1000);
    data_settings settings = settings_for("tokens");
    settings.order = DATA_SHUFFLED;
    settings.sequence = 7;
    settings.global_batch = 24;
    int32_t expected[24 * 20], taken[24 * 20];
    data *d = open_data(&settings);
    int64_t count = windows_taken(d, &settings, 1, 0, 20, expected);
    data_close(d);
    const int cases[][2] = {{1, 2}, {1, 24}, {2, 1}, {2, 4}, {3, 8}, {4, 3}, {6, 1}, {8, 3}, {12, 2}, {24, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        settings.micro_batch = cases[i][1];
        d = open_data(&settings);
        for (int64_t step = 19; step >= 0; step--) /* any step can be asked for first */
            windows_taken(d, &settings, cases[i][0], step, 1, taken + step * 24);
        assert_memory_equal(taken, expected, (size_t)count * sizeof *taken);
        data_close(d);
    }
}

/* A hash of all that a step trains on, at any number of ranks. */
static uint64_t batch_hash(data *d, const data_settings *s, int64_t step) {
    int32_t batch[2][MOST], order[MOST];
    const int64_t tokens = s->micro_batch * s->sequence, micro_batches = s->global_batch / s->micro_batch;
    assert_true(micro_batches * tokens <= MOST);
    for (int64_t m = 0; m < micro_batches; m++) {
        error e = {0};
        assert_true(data_training_batch(d, step, m, batch[0] + m * tokens, batch[1] + m * tokens, order, &e));
    }
    const size_t bytes = (size_t)(micro_batches * tokens) * sizeof **batch;
    return XXH3_64bits(batch[0], bytes) ^ (XXH3_64bits(batch[1], bytes) << 1);
}

/* Three epochs straight, and stopped behind every step: in the midst of an epoch, at its border (24 windows), and where
 * a batch spans two (23). */
static void a_run_that_goes_on_takes_the_same_batches(void **state) {
    (void)state;
    enum { BATCH = 6, STEPS = 12, LATER = 2 * STEPS };
    const int32_t windows[] = {23, 24};
    const data_order orders[] = {DATA_SHUFFLED, DATA_SEQUENTIAL};
    for (int variant = 0; variant < 4; variant++) {
        write_counting_file("tokens", 0, windows[variant / 2] * 4 + 1);
        data_settings settings = settings_for("tokens");
        settings.order = orders[variant % 2];
        settings.global_batch = BATCH;
        data *d = open_data(&settings);
        assert_int_equal(data_describe(d).windows, windows[variant / 2]);
        uint64_t straight[STEPS];
        for (int64_t step = 0; step < STEPS; step++)
            straight[step] = batch_hash(d, &settings, step);
        data_close(d);
        for (int64_t stop = 1; stop < STEPS; stop++) {
            settings.micro_batch = (int64_t[]){1, 2, 3, 6}[stop % 4];
            d = open_data(&settings);
            data_continue(d, stop, stop * BATCH);
            for (int64_t step = stop; step < STEPS; step++)
                assert_true(batch_hash(d, &settings, step) == straight[step]);
            data_close(d);
            d = open_data(&settings); /* steps of another batch were done before */
            data_continue(d, LATER, stop * BATCH);
            for (int64_t step = stop; step < STEPS; step++)
                assert_true(batch_hash(d, &settings, LATER + step - stop) == straight[step]);
            data_close(d);
            settings.micro_batch = 1;
        }
    }
}

static void seeds_give_other_orders(void **state) {
    (void)state;
    write_counting_file("tokens", 0, 1000);
    data_settings settings = settings_for("tokens");
    settings.order = DATA_SHUFFLED;
    int32_t taken[2][200];
    int same = 0;
    for (int i = 0; i < 2; i++) {
        settings.seed = (uint64_t)i;
        data *d = open_data(&settings);
        windows_taken(d, &settings, 1, 0, 100, taken[i]);
        data_close(d);
    }
    for (int i = 0; i < 200; i++)
        same += taken[0][i] == taken[1][i];
    assert_in_range(same, 0, 20);
}

/* ---- validation ---- */

/* Windows of all validation batches in order, as their first tokens; -1: padding. */
static int64_t validation_windows(data *d, const data_settings *s, int32_t *taken) {
    int32_t tokens[MOST], targets[MOST], order[MOST];
    int64_t count = 0;
    for (int64_t batch = 0; batch < data_describe(d).validation_batches; batch++) {
        int64_t counted = 0;
        for (int64_t m = 0; m < s->global_batch / s->micro_batch; m++) {
            error e = {0};
            assert_true(data_validation_batch(d, batch, m, tokens, targets, order, &e));
            for (int64_t i = 0; i < s->micro_batch; i++) {
                const int32_t *window = tokens + i * s->sequence, *after = targets + i * s->sequence;
                bool padding = after[0] == -1;
                for (int64_t t = 0; t < s->sequence; t++) {
                    assert_int_equal(window[t], padding ? 0 : window[0] + t);
                    assert_int_equal(after[t], padding ? -1 : window[0] + t + 1);
                    counted += after[t] >= 0;
                }
                taken[count++] = padding ? -1 : window[0];
            }
        }
        assert_int_equal(data_validation_counted(d, batch), counted);
    }
    return count;
}

static void validation_files_are_read_in_order(void **state) {
    (void)state;
    write_counting_file("train", 0, 100);
    write_counting_file("v0", 1000, 10);
    write_counting_file("v1", 1010, 15); /* 25 tokens: 6 windows */
    const char *const validation[] = {"v*"};
    data_settings settings = settings_for("train");
    settings.order = DATA_SHUFFLED;
    settings.validation = validation;
    settings.validation_count = 1;
    settings.global_batch = 4;
    settings.micro_batch = 2;
    data *d = open_data(&settings);
    assert_int_equal(data_describe(d).validation_files, 2);
    assert_int_equal(data_describe(d).validation_windows, 6);
    assert_int_equal(data_describe(d).validation_batches, 2);
    int32_t taken[8];
    assert_int_equal(validation_windows(d, &settings, taken), 8);
    for (int i = 0; i < 8; i++)
        assert_int_equal(taken[i], i < 6 ? 1000 + 4 * i : -1);
    data_close(d);

    settings.validation_batches = 1;
    d = open_data(&settings);
    assert_int_equal(validation_windows(d, &settings, taken), 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(taken[i], 1000 + 4 * i);
    data_close(d);
}

/* 0.29 * 100 is 28.999999999999996 in binary: floor gives 28. */
static void held_out_tokens_are_never_trained_on(void **state) {
    (void)state;
    write_counting_file("tokens", 0, 100);
    data_settings settings = settings_for("tokens");
    settings.validation_fraction = 0.29;
    settings.order = DATA_SHUFFLED;
    data *d = open_data(&settings);
    data_facts facts = data_describe(d);
    assert_int_equal(facts.tokens, 72);
    assert_int_equal(facts.windows, 17);
    assert_int_equal(facts.validation_files, 0);
    assert_int_equal(facts.validation_tokens, 28);
    assert_int_equal(facts.validation_windows, 6);
    int32_t taken[100];
    int64_t count = windows_taken(d, &settings, 1, 0, 50, taken);
    for (int64_t i = 0; i < count; i++)
        assert_true(taken[i] + 4 < 72);
    count = validation_windows(d, &settings, taken);
    assert_int_equal(count, 6);
    for (int64_t i = 0; i < count; i++)
        assert_int_equal(taken[i], 72 + 4 * i);
    data_close(d);
}

static void batches_of_text(void **state) {
    (void)state;
    write_text("text", "In the beginning");
    data_settings settings = settings_for("text");
    data *d = open_data(&settings);
    assert_true(data_describe(d).text);
    int32_t tokens[4], targets[4], order[4];
    error e = {0};
    assert_true(data_training_batch(d, 0, 1, tokens, targets, order, &e));
    assert_memory_equal(tokens, ((int32_t[]){'h', 'e', ' ', 'b'}), sizeof tokens);
    assert_memory_equal(targets, ((int32_t[]){'e', ' ', 'b', 'e'}), sizeof targets);
    assert_memory_equal(order, ((int32_t[]){2, 3, 1, 0}), sizeof order);
    data_close(d);
}

/* ---- resident memory ---- */

static int64_t resident_file_bytes(void) {
    FILE *f = fopen("/proc/self/status", "r");
    assert_non_null(f);
    char line[256];
    long long kilobytes = -1;
    while (kilobytes < 0 && fgets(line, sizeof line, f))
        if (sscanf(line, "RssFile: %lld kB", &kilobytes) != 1)
            kilobytes = -1;
    fclose(f);
    return kilobytes < 0 ? -1 : kilobytes * 1024;
}

static void reading_leaves_nothing_resident(void **state) {
    (void)state;
    enum { BYTES = 64 << 20 };
    char *bytes = memory_allocate(BYTES, 1);
    memset(bytes, 'a', BYTES);
    write_file("large", bytes, BYTES);
    free(bytes);
    data_settings settings = settings_for("large");
    settings.sequence = 512;
    settings.vocabulary = 100;
    settings.order = DATA_SHUFFLED;
    data *d = open_data(&settings);
    int64_t before = resident_file_bytes();
    if (before < 0)
        skip();
    error e = {0};
    assert_true(data_check_tokens(d, &e));
    int32_t tokens[512], targets[512], order[512];
    for (int64_t step = 0; step < 4000; step++)
        assert_true(data_training_batch(d, step, 0, tokens, targets, order, &e));
    /* 64 MiB were read through the mapping; what stays is code that was touched meanwhile. */
    assert_true(resident_file_bytes() - before < 2 << 20);
    data_close(d);
}

/* ---- files that change while in use ---- */

static void expect_batch_error(data *d, const char *message) {
    int32_t tokens[4], targets[4], order[4];
    error e = {0};
    assert_false(data_training_batch(d, 0, 0, tokens, targets, order, &e));
    assert_string_equal(e.message, message);
    assert_int_equal(e.code, EXIT_DATA);
    assert_true(e.own);
}

static void cut_off_while_in_use(void **state) {
    (void)state;
    write_text("text", "In the beginning");
    data_settings settings = settings_for("text");
    data *d = open_data(&settings);
    settings.vocabulary = 255; /* so that a check reads the text */
    data *narrow = open_data(&settings);
    assert_int_equal(truncate("text", 0), 0);
    const char *message = "[data] train: text: cannot be read any more: it was cut off while in use, or its "
                          "disk fails";
    expect_batch_error(d, message);
    expect_batch_error(d, message); /* it stays an answer */
    error e = {0};
    assert_false(data_check_tokens(narrow, &e));
    assert_string_equal(e.message, message);
    data_close(d);
    data_close(narrow);
}

static void overwritten_while_in_use(void **state) {
    (void)state;
    write_text("text", "aaaaaaaaaaaaaaaa");
    data_settings settings = settings_for("text");
    settings.vocabulary = 100;
    settings.order = DATA_SEQUENTIAL;
    data *d = open_data(&settings);
    error e = {0};
    assert_true(data_check_tokens(d, &e));
    int file = open("text", O_WRONLY);
    assert_int_equal(pwrite(file, "z", 1, 4), 1); /* the last target of the first window */
    close(file);
    expect_batch_error(d, "[data] train: token 4 of the stream is 122, outside the vocabulary of 100; the files were "
                          "changed while in use, or differ from rank 0's");
    data_close(d);
}

/* ---- order ---- */

static void expect_order(int64_t count, int64_t vocabulary, bool repeat) {
    int32_t *tokens = memory_allocate((size_t)count, sizeof *tokens);
    int32_t *order = memory_allocate((size_t)count, sizeof *order);
    int32_t *scratch = memory_allocate((size_t)count, sizeof *scratch);
    bool *seen = memory_allocate((size_t)count, sizeof *seen);
    for (int64_t i = 0; i < count; i++) {
        double u = rng_uniform(5, (uint64_t)vocabulary, (uint64_t)i);
        tokens[i] = (int32_t)((repeat ? u * u * u : u) * (double)vocabulary);
    }
    tokens[count / 2] = (int32_t)(vocabulary - 1);
    token_order(tokens, count, vocabulary, order, scratch);
    for (int64_t i = 0; i < count; i++) {
        assert_true(order[i] >= 0 && order[i] < count && !seen[order[i]]);
        seen[order[i]] = true;
        if (i == 0)
            continue;
        int32_t a = tokens[order[i - 1]], b = tokens[order[i]];
        assert_true(a < b || (a == b && order[i - 1] < order[i]));
    }
    free(tokens);
    free(order);
    free(scratch);
    free(seen);
}

static void order_sorts_by_token_then_index(void **state) {
    (void)state;
    const int64_t vocabularies[] = {1, 2, 97, 2048, 2049, 50257, 128256, 4194304, 4194305, INT32_MAX};
    const int64_t counts[] = {1, 2, 1000, 100000};
    for (size_t v = 0; v < sizeof vocabularies / sizeof *vocabularies; v++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            expect_order(counts[c], vocabularies[v], c % 2 == 0);
}

#define test_in_folder(name) cmocka_unit_test_setup_teardown(name, enter_folder, leave_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_folder(text_is_bytes),
        test_in_folder(header_files_of_both_widths_and_versions),
        test_in_folder(headerless_files),
        test_in_folder(forced_text_takes_any_bytes),
        test_in_folder(globs_are_sorted_and_lists_keep_their_order),
        test_in_folder(files_that_cannot_be_opened),
        test_in_folder(unreadable_file),
        test_in_folder(damaged_token_files),
        test_in_folder(headerless_mistakes),
        test_in_folder(too_short_for_a_window),
        test_in_folder(sources_that_do_not_fit_together),
        test_in_folder(tokens_outside_the_vocabulary),
        test_in_folder(token_outside_a_large_file),
        test_in_folder(sequential_windows_wrap),
        test_in_folder(windows_by_length),
        test_in_folder(one_window_is_taken_again_and_again),
        test_in_folder(shuffled_epochs_hold_each_window_once),
        test_in_folder(same_windows_for_any_ranks_and_micro_batch),
        test_in_folder(a_run_that_goes_on_takes_the_same_batches),
        test_in_folder(seeds_give_other_orders),
        test_in_folder(validation_files_are_read_in_order),
        test_in_folder(held_out_tokens_are_never_trained_on),
        test_in_folder(batches_of_text),
        test_in_folder(reading_leaves_nothing_resident),
        test_in_folder(cut_off_while_in_use),
        test_in_folder(overwritten_while_in_use),
        cmocka_unit_test(order_sorts_by_token_then_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
