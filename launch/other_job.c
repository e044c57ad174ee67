#include "launch/other_job.h"

#include "engine/checked.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME = 64 };

/* The kernel keeps 15 letters of it. */
static bool read_name(long process, char name[NAME]) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/comm", process);
    FILE *file = fopen(path, "r");
    const bool good = file != NULL && fgets(name, NAME, file) != NULL;
    if (file != NULL)
        fclose(file);
    return good;
}

static bool is_other_rank(long process, const char *own_name, const long *job, int size) {
    char name[NAME];
    for (int r = 0; r < size; r++)
        if (job[r] == process)
            return false;
    return read_name(process, name) && strcmp(name, own_name) == 0;
}

static bool meets(long process, const cpu_set_t *cores, cpu_set_t *common) {
    cpu_set_t its;
    if (sched_getaffinity((pid_t)process, sizeof its, &its) != 0)
        return false; /* it has ended */
    CPU_AND(common, &its, cores);
    return CPU_COUNT(common) > 0;
}

static long find(const char *own_name, const long *job, int size, const cpu_set_t *cores, cpu_set_t *common) {
    DIR *processes = opendir("/proc");
    long lowest = 0;
    while (processes != NULL) {
        const struct dirent *entry = readdir(processes);
        if (entry == NULL)
            break;
        const long process = strtol(entry->d_name, NULL, 10);
        cpu_set_t its;
        if (process <= 0 || (lowest > 0 && process > lowest) || !is_other_rank(process, own_name, job, size) ||
            !meets(process, cores, &its))
            continue;
        lowest = process;
        *common = its;
    }
    if (processes != NULL)
        closedir(processes);
    return lowest;
}

long other_job_find(world *w, const cpu_set_t *cores, cpu_set_t *common) {
    const long mine = getpid();
    long *job = memory_allocate((size_t)w->size, sizeof *job), found = 0;
    char own_name[NAME];
    world_all_gather(w, &mine, sizeof mine, job);
    if (read_name(mine, own_name))
        found = find(own_name, job, w->size, cores, common);
    free(job);
    return found;
}
