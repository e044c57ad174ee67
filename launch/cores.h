/* Sets of cores, and where the system says that they lie. `system` is the folder /sys, or a copy of it. */
#ifndef FSDP_LAUNCH_CORES_H
#define FSDP_LAUNCH_CORES_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

/* The NUMA node of a core; -1: the system does not say. */
int cores_node_of(const char *system, int core);

/* Share `index` of `shares` equal ones, at most as many as there are cores: neighbours, by NUMA node and then by
 * physical core, so that a share crosses no more of either than it must. */
cpu_set_t cores_share(const char *system, const cpu_set_t *of, int index, int shares);

/* The cores of `of` that the system calls near to the PCI device at this address ("0000:1b:00.0"); all of them when it
 * says nothing or there is none. */
cpu_set_t cores_near(const char *system, const cpu_set_t *of, const char *address);

/* "0-3,8", and the reverse, which false is for what is no such list. */
void cores_format(const cpu_set_t *cores, char *text, size_t size);
bool cores_parse(const char *text, cpu_set_t *cores);

/* The NUMA nodes of these cores, as "0" or "0-1"; empty when the system does not say, or has one node only. */
void cores_format_nodes(const char *system, const cpu_set_t *cores, char *text, size_t size);

#endif
