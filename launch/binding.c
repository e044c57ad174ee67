#include "launch/binding.h"

#include "engine/checked.h"
#include "launch/cores.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char SYSTEM[] = "/sys";

/* ---- what the launcher allows ---- */

/* Whether somebody told mpirun how to bind. */
static bool asked_of_launcher(void) {
    return getenv("OMPI_COMM_WORLD_SIZE") != NULL && getenv("OMPI_MCA_hwloc_base_binding_policy") != NULL;
}

/* The process above this one, and whether this one starts ranks for Open MPI. */
static pid_t parent_of(pid_t process, bool *launches) {
    static const char *const launchers[] = {"(mpirun)", "(mpiexec)", "(orterun)", "(orted)", "(prterun)", "(prted)"};
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)process);
    FILE *file = fopen(path, "r");
    const size_t length = file != NULL ? fread(line, 1, sizeof line - 1, file) : 0;
    if (file != NULL)
        fclose(file);
    line[length] = '\0';
    *launches = false;
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
        *launches |= strstr(line, launchers[i]) != NULL;
    const char *name_end = strrchr(line, ')'); /* names may hold blanks and brackets */
    long parent = 0;
    return name_end != NULL && sscanf(name_end + 1, " %*c %ld", &parent) == 1 ? (pid_t)parent : 0;
}

/* The nearest process above that started this rank; 0: not to be seen from here. */
static pid_t find_launcher(void) {
    bool launches = false;
    pid_t process = getpid(), parent = parent_of(process, &launches);
    while (parent > 0 && !launches) {
        process = parent;
        parent = parent_of(process, &launches);
    }
    return launches ? process : 0;
}

/* The cores that this process was given. Where Open MPI has bound it to a single one unasked, those that Open MPI was
 * given itself. */
static bool find_allowed(cpu_set_t *allowed) {
    if (sched_getaffinity(0, sizeof *allowed, allowed) != 0)
        return false;
    if (getenv("OMPI_COMM_WORLD_SIZE") == NULL || asked_of_launcher() || CPU_COUNT(allowed) > 1)
        return true;
    const pid_t launcher = find_launcher();
    return launcher == 0 || sched_getaffinity(launcher, sizeof *allowed, allowed) == 0;
}

/* ---- dividing ---- */

/* This rank's place among those of its node that have the same cores to divide. */
typedef struct place {
    int index, members;
} place;

static place find_place(world *w, const cpu_set_t *mine) {
    cpu_set_t *all = memory_allocate((size_t)w->size, sizeof *all);
    place p = {0};
    world_all_gather(w, mine, sizeof *mine, all);
    for (int r = 0; r < w->size; r++) {
        if (w->node_of[r] != w->node || !CPU_EQUAL(&all[r], mine))
            continue;
        p.index += r < w->rank;
        p.members++;
    }
    free(all);
    return p;
}

/* Gives this rank its share of what it may use, or all of it where ranks outnumber cores. */
static void take_share(binding *b, const cpu_set_t *usable, place p) {
    const bool enough = CPU_COUNT(usable) >= p.members;
    const cpu_set_t share = enough ? cores_share(SYSTEM, usable, p.index, p.members) : *usable;
    if (sched_setaffinity(0, sizeof share, &share) != 0)
        return;
    b->cores = share;
    b->sharers = enough ? 1 : p.members;
}

static bool refuse(const config *c, const world *w, const binding *b, int ranks, error *e) {
    char cores[256];
    const int count = CPU_COUNT(&b->allowed);
    cores_format(&b->allowed, cores, sizeof cores);
    config_refuse(
        c, &c->device.bind, e,
        "%d ranks on host %s may use %d core%s (%s); start at most %d there, allow them more, or leave bind out", ranks,
        w->host, count, count == 1 ? "" : "s", cores, count);
    return false;
}

bool binding_make(const config *c, world *w, binding *made, error *e) {
    const bool insists = c->device.bind == CONFIG_YES && config_given(c, &c->device.bind);
    *made = (binding){.sharers = 1};
    const bool known = find_allowed(&made->allowed);
    made->cores = made->allowed;
    const place p = find_place(w, &made->allowed);
    made->sharers = p.members;
    if (insists && (!known || CPU_COUNT(&made->allowed) < p.members))
        refuse(c, w, made, p.members, e);
    if (!world_agree(w, e))
        return false;
    if (known && c->device.bind == CONFIG_NO)
        sched_setaffinity(0, sizeof made->allowed, &made->allowed);
    made->divides = known && c->device.bind == CONFIG_YES && (insists || !asked_of_launcher());
    if (made->divides)
        take_share(made, &made->allowed, p);
    return true;
}

bool binding_filled(const binding *b, int threads) {
    return (int64_t)threads * b->sharers >= CPU_COUNT(&b->cores);
}

void binding_move_near(binding *b, world *w, const char *address) {
    const cpu_set_t near = cores_near(SYSTEM, &b->allowed, address);
    const place p = find_place(w, &near);
    if (b->divides && CPU_COUNT(&near) >= p.members)
        take_share(b, &near, p);
}

void binding_describe(const binding *b, char *text, size_t size) {
    char cores[64], nodes[64];
    const bool one = CPU_COUNT(&b->cores) == 1, bound = b->divides && !CPU_EQUAL(&b->cores, &b->allowed);
    cores_format(&b->cores, cores, sizeof cores);
    cores_format_nodes(SYSTEM, &b->cores, nodes, sizeof nodes);
    snprintf(text, size, "%score%s %s%s%s", bound ? "bound to " : "", one ? "" : "s", cores,
             nodes[0] != '\0' ? ", NUMA node " : "", nodes);
    if (b->sharers > 1)
        snprintf(text + strlen(text), size - strlen(text), ", shared by %d ranks", b->sharers);
}
