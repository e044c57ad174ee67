/* Tests that work with files: each starts in an empty folder of its own, which is removed afterwards. */
#ifndef FSDP_TESTS_SUPPORT_FOLDER_H
#define FSDP_TESTS_SUPPORT_FOLDER_H

#include <stddef.h>

/* For cmocka's table of tests: changes into a new empty folder before `test` and out of it afterwards. */
#define TEST_IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, test_folder_enter, test_folder_leave)
int test_folder_enter(void **state);
int test_folder_leave(void **state);

/* A failure ends the program. */
void test_file_write(const char *path, const void *bytes, size_t count);
void test_text_write(const char *path, const char *text);

/* The file's bytes and a NUL behind them; freed by the caller. */
char *test_file_read(const char *path, size_t *count);

#endif
