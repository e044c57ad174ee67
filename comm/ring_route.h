/* The way that bytes take from one device to another: what NCCL chooses, so that what the rings add up is what runs.
 * Over NVLinks and NVSwitches alone where that is possible; else over the fewest links, one other GPU that both reach
 * by NVLink counted as a way; of equally many the widest. Ties are broken by PCI address. */
#ifndef FSDP_COMM_RING_ROUTE_H
#define FSDP_COMM_RING_ROUTE_H

#include "comm/topology.h"

/* From near to far, with NCCL's names for them. */
typedef enum route_kind {
    ROUTE_NVLINK,  /* NVL */
    ROUTE_GPU,     /* NVB: over another GPU */
    ROUTE_SWITCH,  /* PIX: one PCIe switch at most */
    ROUTE_BRIDGES, /* PXB: several */
    ROUTE_PROXY,   /* PXN: over NVLink to a GPU that lies nearer to the card */
    ROUTE_NUMA,    /* PHB: the root complex of one NUMA node */
    ROUTE_SOCKETS  /* SYS: between NUMA nodes */
} route_kind;

enum { ROUTE_LINKS_MOST = 160 };

typedef struct route {
    route_kind kind;
    int count;                   /* 0: there is no way */
    int links[ROUTE_LINKS_MOST]; /* directed links of the topology, in order */
    double bandwidth;            /* of the slowest link, relaying counted */
} route;

/* What a byte that takes the route costs link number `link` of it: 1, or more where a root complex relays slowly. */
double route_load(const topology *t, const route *r, int link);

/* ways[from]: from every node to `to`. */
void route_find(const topology *t, int to, route *ways);

const char *route_name(route_kind kind); /* NCCL's */

#endif
