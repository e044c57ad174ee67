#include "launch/cores.h"

#include "engine/checked.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { NODES_MOST = 1024 };

/* ---- lists ---- */

void cores_format(const cpu_set_t *cores, char *text, size_t size) {
    size_t used = 0;
    if (size > 0)
        text[0] = '\0';
    for (int first = 0; first < CPU_SETSIZE && used < size; first++) {
        int last = first;
        if (!CPU_ISSET(first, cores))
            continue;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, cores))
            last++;
        const char *comma = used > 0 ? "," : "";
        used += (size_t)(first == last ? snprintf(text + used, size - used, "%s%d", comma, first)
                                       : snprintf(text + used, size - used, "%s%d-%d", comma, first, last));
        first = last;
    }
}

bool cores_parse(const char *text, cpu_set_t *cores) {
    CPU_ZERO(cores);
    while (isdigit((unsigned char)*text)) {
        char *end;
        const long first = strtol(text, &end, 10);
        const long last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        for (long core = first; core <= last && core < CPU_SETSIZE; core++)
            CPU_SET((int)core, cores);
        if (*end != ',')
            return last >= first && (*end == '\n' || *end == '\0');
        text = end + 1;
    }
    return false;
}

/* Reads a file of one list; false: it is not there, or holds something else. */
static bool read_list(const char *path, cpu_set_t *cores) {
    char line[4096];
    FILE *file = fopen(path, "r");
    const bool good = file != NULL && fgets(line, sizeof line, file) != NULL && cores_parse(line, cores);
    if (file != NULL)
        fclose(file);
    return good;
}

/* ---- where cores lie ---- */

static int first_of(const cpu_set_t *cores) {
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, cores))
            return core;
    return -1;
}

int cores_node_of(const char *system, int core) {
    for (int node = 0; node < NODES_MOST; node++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/devices/system/cpu/cpu%d/node%d", system, core, node);
        if (access(path, F_OK) == 0)
            return node;
    }
    return -1;
}

typedef struct placed_core {
    int node, physical, number; /* physical: the lowest number among the threads of one core */
} placed_core;

static placed_core place_core(const char *system, int core) {
    char path[4096];
    cpu_set_t siblings;
    snprintf(path, sizeof path, "%s/devices/system/cpu/cpu%d/topology/thread_siblings_list", system, core);
    const int physical = read_list(path, &siblings) ? first_of(&siblings) : core;
    return (placed_core){cores_node_of(system, core), physical, core};
}

static int by_place(const void *a, const void *b) {
    const placed_core *x = a, *y = b;
    if (x->node != y->node)
        return x->node - y->node;
    return x->physical != y->physical ? x->physical - y->physical : x->number - y->number;
}

cpu_set_t cores_share(const char *system, const cpu_set_t *of, int index, int shares) {
    const int count = CPU_COUNT(of);
    placed_core *placed = memory_allocate((size_t)count, sizeof *placed);
    cpu_set_t share;
    for (int core = 0, i = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, of))
            placed[i++] = place_core(system, core);
    qsort(placed, (size_t)count, sizeof *placed, by_place);
    CPU_ZERO(&share);
    for (int i = count * index / shares; i < count * (index + 1) / shares; i++)
        CPU_SET(placed[i].number, &share);
    free(placed);
    return share;
}

cpu_set_t cores_near(const char *system, const cpu_set_t *of, const char *address) {
    char path[4096];
    cpu_set_t near;
    snprintf(path, sizeof path, "%s/bus/pci/devices/%s/local_cpulist", system, address);
    if (!read_list(path, &near))
        return *of;
    CPU_AND(&near, &near, of);
    return CPU_COUNT(&near) > 0 ? near : *of;
}

void cores_format_nodes(const char *system, const cpu_set_t *cores, char *text, size_t size) {
    cpu_set_t nodes;
    char path[4096];
    CPU_ZERO(&nodes);
    text[0] = '\0';
    snprintf(path, sizeof path, "%s/devices/system/node/online", system);
    if (!read_list(path, &nodes) || CPU_COUNT(&nodes) < 2)
        return;
    CPU_ZERO(&nodes);
    for (int core = 0; core < CPU_SETSIZE; core++) {
        const int node = CPU_ISSET(core, cores) ? cores_node_of(system, core) : -1;
        if (node >= 0)
            CPU_SET(node, &nodes);
    }
    cores_format(&nodes, text, size);
}
