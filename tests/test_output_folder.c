/* The lock of an output folder, between processes. */
#include "launch/output_folder.h"
#include "support/folder.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
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

/* Another run: it locks, tells so, and says who it is a moment later. */
static void hold(int tell, int until) {
    char byte = 0;
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    const int lock = open(file, O_RDWR | O_CREAT, 0666);
    if (fcntl(lock, F_OFD_SETLK, &whole) != 0 || write(tell, &byte, 1) != 1)
        _exit(1);
    usleep(200000);
    if (write(lock, "process 7", 9) != 9)
        _exit(1);
    _exit(read(until, &byte, 1) == 0 ? 0 : 1);
}

static void a_holder_is_named_that_has_only_just_locked(void **state) {
    (void)state;
    int told[2], until[2], status;
    char byte;
    error e = {0};
    output_lock *lock;
    assert_true(output_folder_prepare("out", &e));
    assert_true(pipe(told) == 0 && pipe(until) == 0);
    const pid_t holder = fork();
    assert_true(holder >= 0);
    if (holder == 0) {
        close(until[1]);
        hold(told[1], until[0]);
    }
    assert_int_equal(read(told[0], &byte, 1), 1);
    assert_false(output_lock_take("out", &lock, &e));
    assert_int_equal(e.code, EXIT_USAGE);
    assert_string_equal(e.message, "[output] folder = out: another run writes there: process 7; end it, or use another "
                                   "folder");
    close(until[1]);
    assert_int_equal(waitpid(holder, &status, 0), holder);
    assert_int_equal(status, 0);
    close(told[0]);
    close(told[1]);
    close(until[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_IN_FOLDER(release_leaves_nothing),
        TEST_IN_FOLDER(what_a_dead_run_left_is_taken_over),
        TEST_IN_FOLDER(a_holder_is_named_that_has_only_just_locked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
