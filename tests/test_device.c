#include "engine/device/cpu/processor.h"
#include "engine/device/cpu/shared_memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static device *device_of(int threads) {
    error e = {0};
    device *d = NULL;
    assert_true(device_cpu.open(&(device_settings){.threads = threads}, &d, &e));
    return d;
}

static void memory_is_shared_through_its_handle(void **state) {
    (void)state;
    device *d = device_of(1);
    device_memory memory = {0};
    error e = {0};
    const size_t bytes = (5 << 20) + 123;
    assert_true(device_cpu.allocate(d, bytes, &memory, &e));
    assert_int_equal(memory.bytes, bytes);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), memory.handle);
    FILE *peer = fopen(path, "r+");
    assert_non_null(peer);
    char *seen = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(peer), 0);
    assert_true(seen != MAP_FAILED);
    device_cpu.write(d, (char *)memory.base + bytes - 6, "sister", 6);
    assert_memory_equal(seen + bytes - 6, "sister", 6);
    memcpy(seen, "brother", 7);
    char back[7];
    device_cpu.read(d, back, memory.base, sizeof back);
    assert_memory_equal(back, "brother", 7);
    munmap(seen, bytes);
    fclose(peer);
    device_cpu.release(d, &memory);
    assert_null(memory.base);
    assert_int_equal(memory.handle, -1);
    device_cpu.close(d);
}

/* Bytes of this process, by a line of /proc/self/smaps_rollup. */
static int64_t bytes_of(const char *what) {
    char line[256];
    long long kilobytes = -1;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, what, strlen(what)) == 0)
            assert_int_equal(sscanf(line + strlen(what), ": %lld", &kilobytes), 1);
    fclose(file);
    assert_true(kilobytes >= 0);
    return kilobytes * 1024;
}

static void memory_is_resident_once(void **state) {
    (void)state;
    device *d = device_of(2);
    device_memory memory = {0};
    error e = {0};
    const int64_t bytes = (69 << 20) + 4096, before = bytes_of("Rss");
    assert_true(device_cpu.allocate(d, (size_t)bytes, &memory, &e));
    assert_true(bytes_of("Rss") - before < bytes + (1 << 20));
    memset(memory.base, 1, memory.bytes);
    assert_true(bytes_of("Rss") - before >= bytes);
    assert_true(bytes_of("Rss") - before < bytes + (1 << 20));
    device_cpu.release(d, &memory);
    assert_true(bytes_of("Rss") - before < 1 << 20);
    device_cpu.close(d);
}

/* Whether the system makes huge pages when it is asked to. */
static bool huge_pages_exist(void) {
    const size_t bytes = 2 * HUGE_PAGE;
    char *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(base != MAP_FAILED);
    memset(base, 1, bytes);
    const bool exist = madvise(base, bytes, 25) == 0; /* MADV_COLLAPSE */
    munmap(base, bytes);
    return exist;
}

static void memory_goes_into_huge_pages_with_its_contents(void **state) {
    (void)state;
    device *d = device_of(2);
    device_memory memory = {0};
    error e = {0};
    if (!huge_pages_exist())
        skip();
    const int64_t bytes = (69 << 20) + 4096, before = bytes_of("ShmemPmdMapped");
    assert_true(device_cpu.allocate(d, (size_t)bytes, &memory, &e));
    assert_int_equal((uintptr_t)memory.base % HUGE_PAGE, 0);
    unsigned char *at = memory.base;
    for (int64_t i = 0; i < bytes / 2; i++) /* the rest has never been touched */
        at[i] = (unsigned char)(i % 251);
    device_cpu.enlarge_pages(d, &memory);
    int64_t differing = 0;
    for (int64_t i = 0; i < bytes; i++)
        differing += at[i] != (i < bytes / 2 ? i % 251 : 0);
    assert_int_equal(differing, 0);
    assert_int_equal(bytes_of("ShmemPmdMapped") - before, bytes / HUGE_PAGE * HUGE_PAGE);
    device_cpu.release(d, &memory);
    device_cpu.close(d);
}

static void impossible_sizes_are_refused(void **state) {
    (void)state;
    device *d = device_of(1);
    device_memory memory = {0};
    error e = {0};
    assert_false(device_cpu.allocate(d, (size_t)1 << 62, &memory, &e));
    assert_int_equal(e.code, EXIT_LAUNCH);
    assert_non_null(strstr(e.message, "4611686018427387904 bytes"));
    device_cpu.close(d);
}

static void copies_move_bytes_between_host_and_device(void **state) {
    (void)state;
    device *d = device_of(2);
    int32_t tokens[3] = {7, 8, 9}, inside[3] = {0};
    launch in = {.kind = OPERATION_COPY_IN, .workspace = tokens};
    in.out[0] = (operand){inside, DTYPE_I32, {3, 1, 1}};
    device_cpu.launch(d, 0, &in);
    assert_memory_equal(inside, tokens, sizeof tokens);

    double results[2] = {1.5, -2.5}, outside[2] = {0};
    launch out = {.kind = OPERATION_COPY_OUT, .workspace = outside};
    out.in[0] = (operand){results, DTYPE_F64, {2, 1, 1}};
    device_cpu.launch(d, 0, &out);
    assert_memory_equal(outside, results, sizeof results);
    assert_int_equal(device_cpu.workspace(d, &in), 0);
    device_cpu.close(d);
}

static void the_device_says_what_it_is(void **state) {
    (void)state;
    int tables = 0;
    const cpu_kernel_table *best = &processor_kernels(&tables)[0];
    char processor[100], expected[200];
    processor_name(processor, sizeof processor);
    assert_true(strlen(processor) > 0);
    device *one = device_of(1), *three = device_of(3);
    snprintf(expected, sizeof expected, "%s, %s, 1 thread", processor, best->isa);
    assert_string_equal(device_cpu.describe(one), expected);
    snprintf(expected, sizeof expected, "%s, %s, 3 threads", processor, best->isa);
    assert_string_equal(device_cpu.describe(three), expected);
    assert_int_equal(pool_threads(device_cpu.host_threads(three)), 3);
    device_cpu.close(one);
    device_cpu.close(three);
}

static void the_last_table_is_the_baseline(void **state) {
    (void)state;
    int tables = 0;
    const cpu_kernel_table *list = processor_kernels(&tables);
    assert_in_range(tables, 1, 3);
    assert_string_equal(list[tables - 1].isa, "baseline");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_shared_through_its_handle),
        cmocka_unit_test(memory_is_resident_once),
        cmocka_unit_test(memory_goes_into_huge_pages_with_its_contents),
        cmocka_unit_test(impossible_sizes_are_refused),
        cmocka_unit_test(copies_move_bytes_between_host_and_device),
        cmocka_unit_test(the_device_says_what_it_is),
        cmocka_unit_test(the_last_table_is_the_baseline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
