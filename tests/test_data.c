/* Training data: which windows a step takes, in which order, on any number of ranks; validation; what stays resident.
 */
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
#include <unistd.h>

#include <xxhash.h>

#include <cmocka.h>

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
    token_file_write_counting("tokens", 0, 16); /* W = floor(15 / 4) = 3, the last 3 tokens in no window */
    data_settings settings = small_data_settings("tokens");
    data *d = small_data_open(&settings);
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
        token_file_write_counting("tokens", 0, n);
        data_settings settings = small_data_settings("tokens");
        data *d = small_data_open(&settings);
        assert_int_equal(data_describe(d).windows, (n - 1) / 4);
        data_close(d);
    }
}

static void one_window_is_taken_again_and_again(void **state) {
    (void)state;
    token_file_write_counting("tokens", 0, 5);
    data_settings settings = small_data_settings("tokens");
    settings.order = DATA_SHUFFLED;
    data *d = small_data_open(&settings);
    int32_t taken[6];
    assert_int_equal(windows_taken(d, &settings, 2, 0, 3, taken), 6);
    for (int i = 0; i < 6; i++)
        assert_int_equal(taken[i], 0);
    data_close(d);
}

static void shuffled_epochs_hold_each_window_once(void **state) {
    (void)state;
    enum { WINDOWS = 23, EPOCHS = 6 }; /* 23 is prime: batches of 6 span epochs */
    token_file_write_counting("tokens", 0, WINDOWS * 4 + 3);
    data_settings settings = small_data_settings("tokens");
    settings.order = DATA_SHUFFLED;
    settings.global_batch = 6;
    data *d = small_data_open(&settings);
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
    token_file_write_counting("tokens", 0, 1000);
    data_settings settings = small_data_settings("tokens");
    settings.order = DATA_SHUFFLED;
    settings.sequence = 7;
    settings.global_batch = 24;
    int32_t expected[24 * 20], taken[24 * 20];
    data *d = small_data_open(&settings);
    int64_t count = windows_taken(d, &settings, 1, 0, 20, expected);
    data_close(d);
    const int cases[][2] = {{1, 2}, {1, 24}, {2, 1}, {2, 4}, {3, 8}, {4, 3}, {6, 1}, {8, 3}, {12, 2}, {24, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        settings.micro_batch = cases[i][1];
        d = small_data_open(&settings);
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
        token_file_write_counting("tokens", 0, windows[variant / 2] * 4 + 1);
        data_settings settings = small_data_settings("tokens");
        settings.order = orders[variant % 2];
        settings.global_batch = BATCH;
        data *d = small_data_open(&settings);
        assert_int_equal(data_describe(d).windows, windows[variant / 2]);
        uint64_t straight[STEPS];
        for (int64_t step = 0; step < STEPS; step++)
            straight[step] = batch_hash(d, &settings, step);
        data_close(d);
        for (int64_t stop = 1; stop < STEPS; stop++) {
            settings.micro_batch = (int64_t[]){1, 2, 3, 6}[stop % 4];
            d = small_data_open(&settings);
            data_continue(d, stop, stop * BATCH);
            for (int64_t step = stop; step < STEPS; step++)
                assert_true(batch_hash(d, &settings, step) == straight[step]);
            data_close(d);
            d = small_data_open(&settings); /* steps of another batch were done before */
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
    token_file_write_counting("tokens", 0, 1000);
    data_settings settings = small_data_settings("tokens");
    settings.order = DATA_SHUFFLED;
    int32_t taken[2][200];
    int same = 0;
    for (int i = 0; i < 2; i++) {
        settings.seed = (uint64_t)i;
        data *d = small_data_open(&settings);
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
    token_file_write_counting("train", 0, 100);
    token_file_write_counting("v0", 1000, 10);
    token_file_write_counting("v1", 1010, 15); /* 25 tokens: 6 windows */
    const char *const validation[] = {"v*"};
    data_settings settings = small_data_settings("train");
    settings.order = DATA_SHUFFLED;
    settings.validation = validation;
    settings.validation_count = 1;
    settings.global_batch = 4;
    settings.micro_batch = 2;
    data *d = small_data_open(&settings);
    assert_int_equal(data_describe(d).validation_files, 2);
    assert_int_equal(data_describe(d).validation_windows, 6);
    assert_int_equal(data_describe(d).validation_batches, 2);
    int32_t taken[8];
    assert_int_equal(validation_windows(d, &settings, taken), 8);
    for (int i = 0; i < 8; i++)
        assert_int_equal(taken[i], i < 6 ? 1000 + 4 * i : -1);
    data_close(d);

    settings.validation_batches = 1;
    d = small_data_open(&settings);
    assert_int_equal(validation_windows(d, &settings, taken), 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(taken[i], 1000 + 4 * i);
    data_close(d);
}

/* 0.29 * 100 is 28.999999999999996 in binary: floor gives 28. */
static void held_out_tokens_are_never_trained_on(void **state) {
    (void)state;
    token_file_write_counting("tokens", 0, 100);
    data_settings settings = small_data_settings("tokens");
    settings.validation_fraction = 0.29;
    settings.order = DATA_SHUFFLED;
    data *d = small_data_open(&settings);
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
    test_text_write("text", "In the beginning");
    data_settings settings = small_data_settings("text");
    data *d = small_data_open(&settings);
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
    test_file_write("large", bytes, BYTES);
    free(bytes);
    data_settings settings = small_data_settings("large");
    settings.sequence = 512;
    settings.vocabulary = 100;
    settings.order = DATA_SHUFFLED;
    data *d = small_data_open(&settings);
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
    test_text_write("text", "In the beginning");
    data_settings settings = small_data_settings("text");
    data *d = small_data_open(&settings);
    settings.vocabulary = 255; /* so that a check reads the text */
    data *narrow = small_data_open(&settings);
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
    test_text_write("text", "aaaaaaaaaaaaaaaa");
    data_settings settings = small_data_settings("text");
    settings.vocabulary = 100;
    settings.order = DATA_SEQUENTIAL;
    data *d = small_data_open(&settings);
    error e = {0};
    assert_true(data_check_tokens(d, &e));
    int file = open("text", O_WRONLY);
    assert_int_equal(pwrite(file, "z", 1, 4), 1); /* the last target of the first window */
    close(file);
    expect_batch_error(d, "[data] train: token 4 of the stream is 122, outside the vocabulary of 100; the files were "
                          "changed while in use, or differ from rank 0's");
    data_close(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_IN_FOLDER(sequential_windows_wrap),
        TEST_IN_FOLDER(windows_by_length),
        TEST_IN_FOLDER(one_window_is_taken_again_and_again),
        TEST_IN_FOLDER(shuffled_epochs_hold_each_window_once),
        TEST_IN_FOLDER(same_windows_for_any_ranks_and_micro_batch),
        TEST_IN_FOLDER(a_run_that_goes_on_takes_the_same_batches),
        TEST_IN_FOLDER(seeds_give_other_orders),
        TEST_IN_FOLDER(validation_files_are_read_in_order),
        TEST_IN_FOLDER(held_out_tokens_are_never_trained_on),
        TEST_IN_FOLDER(batches_of_text),
        TEST_IN_FOLDER(reading_leaves_nothing_resident),
        TEST_IN_FOLDER(cut_off_while_in_use),
        TEST_IN_FOLDER(overwritten_while_in_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
