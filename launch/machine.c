#include "launch/machine.h"

#include "engine/checked.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int machine_threads(int64_t configured, int sharers) {
    if (configured > 0)
        return (int)configured;
    const char *text = getenv("OMP_NUM_THREADS");
    const long wanted = text == NULL ? 0 : strtol(text, NULL, 10);
    if (wanted > 0)
        return (int)minimum(wanted, 4096);
    cpu_set_t set;
    const int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return (int)maximum(1, cores / sharers);
}

/* The number behind `key` in a file of "key: number" or, with an empty key, a lone number; -1: not there. */
static int64_t number_in(const char *path, const char *key) {
    FILE *file = fopen(path, "r");
    char line[256];
    long long value = -1;
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, key, strlen(key)) == 0 && sscanf(line + strlen(key), "%lld", &value) == 1)
            break;
    if (file != NULL)
        fclose(file);
    return value;
}

/* What a control group of either version leaves; -1: no limit. */
static int64_t control_group_memory(void) {
    static const char *const files[][2] = {
        {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
        {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const int64_t limit = number_in(files[i][0], ""), used = number_in(files[i][1], "");
        if (limit > 0 && used >= 0 && limit < INT64_MAX / 2)
            return maximum(0, limit - used);
    }
    return -1;
}

int64_t machine_available_memory(void) {
    const int64_t kilobytes = number_in("/proc/meminfo", "MemAvailable:");
    const int64_t machine = kilobytes < 0 ? -1 : kilobytes * 1024, group = control_group_memory();
    return machine < 0 ? group : group < 0 ? machine : minimum(machine, group);
}

int64_t machine_resident(void) {
    long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%*s %lld", &pages) != 1)
        pages = 0;
    fclose(file);
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}
