/* The lock of an output folder, between processes. */
#include "engine/checked.h"
#include "launch/output_folder.h"
#include "support/folder.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char file[] = "out/lock";

static void release_leaves_nothing(void **state) {
    (void)state;
    error e = {0};
    output_lock *lock;
    assert_true(output_lock_take("out", &lock, &e));
    assert_int_equal(access(file, F_OK), 0);
    output_lock_release(lock);
    assert_int_not_equal(access(file, F_OK), 0);
}

static void what_a_dead_run_left_is_taken_over(void **state) {
    (void)state;
    error e = {0};
    output_lock *lock;
    size_t bytes;
    assert_true(output_folder_prepare("out", &e));
    test_text_write(file,
                    "process 1 on a host with a long name, started a long time ago, long ago, in another century");
    assert_true(output_lock_take("out", &lock, &e));
    char *text = test_file_read(file, &bytes);
    assert_null(strstr(text, "century"));
    free(text);
    output_lock_release(lock);
}

static void the_holder_is_named(void **state) {
    (void)state;
    char *own = memory_format("another run writes there: process %ld on host ", (long)getpid());
    error e = {0};
    output_lock *lock, *second;
    assert_true(output_lock_take("out", &lock, &e));
    assert_false(output_lock_take("out", &second, &e));
    assert_int_equal(e.code, EXIT_USAGE);
    assert_non_null(strstr(e.message, own));
    output_lock_release(lock);
    free(own);
}

static void lock_byte(int lock, int place) {
    struct flock byte = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = place, .l_len = 1};
    assert_int_equal(fcntl(lock, F_OFD_SETLK, &byte), 0);
}

static void expect_refusal(const char *holder) {
    char *message =
        memory_format("[output] folder = out: another run writes there: %s; end it, or use another folder", holder);
    error e = {0};
    output_lock *lock;
    assert_false(output_lock_take("out", &lock, &e));
    assert_int_equal(e.code, EXIT_USAGE);
    assert_string_equal(e.message, message);
    free(message);
}

/* The moment between a new holder's lock and its text, for as long as it takes. */
static void a_dead_run_is_not_named_for_one_that_has_only_just_locked(void **state) {
    (void)state;
    error e = {0};
    assert_true(output_folder_prepare("out", &e));
    test_text_write(file, "process 6, dead");
    const int lock = open(file, O_RDWR);
    lock_byte(lock, 0);
    expect_refusal("its lock does not say which");
    test_text_write(file, "process 7");
    lock_byte(lock, 1);
    expect_refusal("process 7");
    close(lock);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_IN_FOLDER(release_leaves_nothing),
        TEST_IN_FOLDER(what_a_dead_run_left_is_taken_over),
        TEST_IN_FOLDER(the_holder_is_named),
        TEST_IN_FOLDER(a_dead_run_is_not_named_for_one_that_has_only_just_locked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
