/* Sets of cores: their texts, and how machines' cores are divided, from copies of what /sys says. */
#include "launch/cores.h"

#include "engine/checked.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/test_cores_XXXXXX";

static int enter_folder(void **state) {
    (void)state;
    strcpy(folder + sizeof folder - 7, "XXXXXX");
    return mkdtemp(folder) == NULL || chdir(folder) != 0;
}

static int leave_folder(void **state) {
    (void)state;
    char *command = memory_format("rm -rf %s", folder);
    const int result = chdir("/") != 0 || system(command) != 0;
    free(command);
    return result;
}

static cpu_set_t set_of(const char *text) {
    cpu_set_t set;
    assert_true(cores_parse(text, &set));
    return set;
}

static void expect_set(cpu_set_t set, const char *expected) {
    char text[256];
    cores_format(&set, text, sizeof text);
    assert_string_equal(text, expected);
}

static void lists_are_read_and_written(void **state) {
    (void)state;
    static const char *const same[] = {"0", "0-1", "0-3,8", "1,3,5-7", "1000-1023"};
    static const char *const bad[] = {"", "x", "1-", "3-1", "1,", "1 2"};
    cpu_set_t set;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        expect_set(set_of(same[i]), same[i]);
    expect_set(set_of("0-1\n"), "0-1");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(cores_parse(bad[i], &set));
    char narrow[5];
    cpu_set_t wide = set_of("0-3,8,10,12");
    cores_format(&wide, narrow, sizeof narrow);
    assert_string_equal(narrow, "0-3,");
}

static void make(const char *path, const char *text) {
    char *command = memory_format("mkdir -p $(dirname %s)", path);
    assert_int_equal(system(command), 0);
    free(command);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* Two NUMA nodes of two cores of two threads; numbered as Linux often does: 0-3 are the first threads, 4-7 the second,
 * even ones on node 0. */
static void make_machine(void) {
    for (int core = 0; core < 8; core++) {
        char path[128], siblings[16];
        snprintf(path, sizeof path, "devices/system/cpu/cpu%d/topology/thread_siblings_list", core);
        snprintf(siblings, sizeof siblings, "%d,%d\n", core % 4, core % 4 + 4);
        make(path, siblings);
        snprintf(path, sizeof path, "devices/system/cpu/cpu%d/node%d/cpulist", core, core % 2);
        make(path, "");
    }
    make("devices/system/node/online", "0-1\n");
    make("bus/pci/devices/0000:1b:00.0/local_cpulist", "0,2,4,6\n");
    make("bus/pci/devices/0000:1c:00.0/local_cpulist", "\n");
}

static void shares_keep_nodes_and_physical_cores_together(void **state) {
    (void)state;
    make_machine();
    static const char *const shares[][8] = {[0] = {"0-7"},
                                            [1] = {"0,2,4,6", "1,3,5,7"},
                                            [3] = {"0,4", "2,6", "1,5", "3,7"},
                                            [7] = {"0", "4", "2", "6", "1", "5", "3", "7"}};
    const cpu_set_t all = set_of("0-7"), some = set_of("1-3,6");
    for (int count = 1; count <= 8; count++)
        for (int i = 0; i < count && shares[count - 1][0] != NULL; i++)
            expect_set(cores_share(".", &all, i, count), shares[count - 1][i]);
    expect_set(cores_share(".", &some, 0, 2), "2,6");
    expect_set(cores_share(".", &some, 1, 2), "1,3");
}

static void every_core_is_in_one_share(void **state) {
    (void)state;
    const cpu_set_t all = set_of("0-7");
    for (int count = 1; count <= 8; count++) {
        int cores = 0;
        cpu_set_t joint = {0};
        for (int i = 0; i < count; i++) {
            const cpu_set_t share = cores_share(".", &all, i, count);
            assert_true(CPU_COUNT(&share) == 8 / count || CPU_COUNT(&share) == 8 / count + 1);
            cores += CPU_COUNT(&share);
            CPU_OR(&joint, &joint, &share);
        }
        assert_int_equal(cores, 8);
        assert_true(CPU_EQUAL(&joint, &all));
    }
}

static void near_cores_are_those_of_the_device(void **state) {
    (void)state;
    make_machine();
    const cpu_set_t all = set_of("0-7"), some = set_of("4-7"), far = set_of("1,3");
    expect_set(cores_near(".", &all, "0000:1b:00.0"), "0,2,4,6");
    expect_set(cores_near(".", &some, "0000:1b:00.0"), "4,6");
    expect_set(cores_near(".", &far, "0000:1b:00.0"), "1,3"); /* none of them is near */
    expect_set(cores_near(".", &all, "0000:1c:00.0"), "0-7");
    expect_set(cores_near(".", &all, ""), "0-7");
}

static void nodes_are_named_where_there_are_several(void **state) {
    (void)state;
    char text[32];
    make_machine();
    const cpu_set_t all = set_of("0-7"), odd = set_of("1,5");
    cores_format_nodes(".", &all, text, sizeof text);
    assert_string_equal(text, "0-1");
    cores_format_nodes(".", &odd, text, sizeof text);
    assert_string_equal(text, "1");
    make("devices/system/node/online", "0\n");
    cores_format_nodes(".", &odd, text, sizeof text);
    assert_string_equal(text, "");
    cores_format_nodes("/nowhere", &odd, text, sizeof text);
    assert_string_equal(text, "");
    expect_set(cores_share("/nowhere", &all, 1, 2), "4-7");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_read_and_written), cmocka_unit_test(shares_keep_nodes_and_physical_cores_together),
        cmocka_unit_test(every_core_is_in_one_share), cmocka_unit_test(near_cores_are_those_of_the_device),
        cmocka_unit_test(nodes_are_named_where_there_are_several)};
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
