/* The machine as a graph: GPUs, NVSwitches, PCIe switches, NUMA nodes and network cards, and every link between them
 * with what it carries in each direction. It comes from hwloc's view of this machine, from a file that hwloc has
 * written, or from an NCCL topology file; the same machine gives the same graph whichever it was, in whatever order it
 * lists devices.
 *
 * Bandwidths are GB/s (1e9 bytes) of one direction, and what a transfer between GPUs reaches: about three quarters of
 * the bits that a PCIe link moves, four fifths of an NVLink's. comm/topology_facts.h holds these numbers and says
 * where they come from.
 *
 * PCIe: what the graph calls a switch is where paths part. A bridge that leads to a single device takes no part in
 * that; it is merged into the device's link, which carries what the slowest piece does. */
#ifndef FSDP_COMM_TOPOLOGY_H
#define FSDP_COMM_TOPOLOGY_H

#include "engine/error.h"

#include <stdint.h>

typedef enum topology_kind {
    TOPOLOGY_NUMA, /* a NUMA node with its root complex: where PCIe trees end */
    TOPOLOGY_SWITCH,
    TOPOLOGY_NVSWITCH, /* all NVSwitches that the same GPUs are connected to, as one */
    TOPOLOGY_GPU,
    TOPOLOGY_CARD,   /* a network card */
    TOPOLOGY_NETWORK /* what lies behind the cards; one node, present when there is a card */
} topology_kind;

typedef struct topology_node {
    topology_kind kind;
    char bus[24];   /* PCI address; the lowest one of several NVSwitches; "" where there is none */
    char name[64];  /* as the source names a GPU or a card; "" when it does not */
    int number;     /* GPU: CUDA's device number; card: NCCL's; NUMA node: the operating system's; NVSwitch: how many */
    int parent;     /* the node above in the PCIe tree; -1: none */
    int socket;     /* NUMA nodes: index into sockets; -1: not known */
    int threads;    /* NUMA nodes: hardware threads; 0: not known */
    int64_t memory; /* NUMA nodes: bytes; 0: not known */
    bool relays_slowly; /* NUMA nodes: transfers between two GPUs below it cost more (FACTS_RELAY_COST) */
} topology_node;

typedef enum topology_link_kind {
    TOPOLOGY_NVLINK,
    TOPOLOGY_PCI,
    TOPOLOGY_SOCKET, /* between NUMA nodes */
    TOPOLOGY_PORT    /* a card's port to the network */
} topology_link_kind;

/* One direction; links[i ^ 1] is the other one. */
typedef struct topology_link {
    topology_link_kind kind;
    int from, to; /* node indices */
    double bandwidth;
    int bridges;    /* PCIe switches that were merged into it */
    char label[48]; /* what it is made of: "x16 8 GT/s", "12 NVLinks"; says so where speed or width is assumed */
} topology_link;

typedef struct topology_cache {
    char name[16]; /* "L3", "L1d" */
    int count;
    int64_t size; /* bytes of one */
} topology_cache;

enum { TOPOLOGY_CACHES = 6 };

typedef struct topology_socket {
    int number;
    char model[80];
    int cores, threads;
    topology_cache caches[TOPOLOGY_CACHES]; /* largest level first; count 0 ends the list */
} topology_socket;

typedef struct topology {
    char source[32];      /* "this machine", "hwloc XML", "NCCL XML" */
    topology_node *nodes; /* by kind, then by number (NUMA nodes) or PCI address */
    int node_count;
    topology_link *links;
    int link_count;
    topology_socket *sockets; /* empty where the source knows only NUMA nodes */
    int socket_count;
    int unknown_targets; /* NVLinks of the source that lead to devices which it does not list; left out */
} topology;

/* Reads `path`; NULL: this machine, now. Errors name the file and, where it has one, the line (EXIT_USAGE: a file that
 * cannot be read, is not XML, has another root element, was written by hwloc 1, or contradicts itself; EXIT_LAUNCH:
 * hwloc cannot look at this machine). topology_free releases what a success holds. */
bool topology_read(const char *path, topology *t, error *e);
void topology_free(topology *t);

/* Nodes of a kind are neighbours in `nodes`: the index of the first, and how many. */
int topology_first(const topology *t, topology_kind kind);
int topology_count(const topology *t, topology_kind kind);

/* Writes what people call the node: "GPU 3", "NUMA node 0", "PCIe switch 0000:10:00.0". Returns text. */
enum { TOPOLOGY_TITLE = 96 };
const char *topology_title(const topology *t, int node, char text[TOPOLOGY_TITLE]);

#endif
