/* Small token files and the settings to read them with. */
#ifndef FSDP_TESTS_SUPPORT_SMALL_DATA_H
#define FSDP_TESTS_SUPPORT_SMALL_DATA_H

#include "launch/data.h"

/* A token file with a header; `bytes` of tokens follow it, whatever the header counts. */
void token_file_write(const char *path, int32_t magic, int32_t version, int32_t count, const void *tokens,
                      size_t bytes);

/* n tokens first, first + 1, ... of 16 bits, with a header. */
void token_file_write_counting(const char *path, int32_t first, int32_t n);

/* Small batches of one file (or glob), vocabulary large enough for anything of 16 bits. Valid until the next call. */
data_settings small_data_settings(const char *path);

/* A failure of these fails the test. */
data *small_data_open(const data_settings *settings);
void small_data_refused(const data_settings *settings, int code, const char *message);
void small_data_path_refused(const char *path, const char *message);

#endif
