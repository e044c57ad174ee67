#include "support/small_data.h"

#include "engine/checked.h"
#include "support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void token_file_write(const char *path, int32_t magic, int32_t version, int32_t count, const void *tokens,
                      size_t bytes) {
    int32_t header[256] = {magic, version, count};
    char *all = memory_allocate(1024 + bytes, 1);
    memcpy(all, header, 1024);
    memcpy(all + 1024, tokens, bytes);
    test_file_write(path, all, 1024 + bytes);
    free(all);
}

void token_file_write_counting(const char *path, int32_t first, int32_t n) {
    uint16_t *tokens = memory_allocate((size_t)n, sizeof *tokens);
    for (int32_t i = 0; i < n; i++)
        tokens[i] = (uint16_t)(first + i);
    token_file_write(path, 20240520, 1, n, tokens, (size_t)n * sizeof *tokens);
    free(tokens);
}

static const char *one_path[1];

data_settings small_data_settings(const char *path) {
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

data *small_data_open(const data_settings *settings) {
    error e = {0};
    data *d = NULL;
    data_open(settings, &d, &e);
    assert_string_equal(e.message, "");
    return d;
}

void small_data_refused(const data_settings *settings, int code, const char *message) {
    error e = {0};
    data *d = NULL;
    if (data_open(settings, &d, &e))
        data_check_tokens(d, &e);
    data_close(d);
    assert_string_equal(e.message, message);
    assert_int_equal(e.code, code);
    assert_false(e.own);
}

void small_data_path_refused(const char *path, const char *message) {
    data_settings settings = small_data_settings(path);
    small_data_refused(&settings, EXIT_DATA, message);
}
