/* What a source lists becomes the graph: bridges where nothing parts are merged into links, NVSwitches that are
 * alike into one, and everything is put in an order that does not depend on the source's. */
#include "comm/topology_build.h"

#include "comm/topology_facts.h"
#include "engine/checked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GPUS_MOST = 64, TREE_DEPTH_MOST = 64 };

int found_add(found_machine *m, found_device device) {
    m->devices = memory_grow(m->devices, (size_t)m->device_count + 1, sizeof *m->devices);
    m->devices[m->device_count] = device;
    return m->device_count++;
}

int found_add_socket(found_machine *m, topology_socket socket) {
    m->sockets = memory_grow(m->sockets, (size_t)m->socket_count + 1, sizeof *m->sockets);
    m->sockets[m->socket_count] = socket;
    return m->socket_count++;
}

void found_add_nvlinks(found_machine *m, int from, int to, int count, double bandwidth) {
    m->nvlinks = memory_grow(m->nvlinks, (size_t)m->nvlink_count + 1, sizeof *m->nvlinks);
    m->nvlinks[m->nvlink_count++] = (found_nvlinks){from, to, count, bandwidth};
}

int found_by_bus(const found_machine *m, topology_kind kind, const char *bus) {
    for (int d = 0; d < m->device_count; d++)
        if (m->devices[d].node.kind == kind && strcmp(m->devices[d].node.bus, bus) == 0)
            return d;
    return -1;
}

void found_free(found_machine *m) {
    free(m->devices);
    free(m->nvlinks);
    free(m->sockets);
}

static const char *origin(const found_machine *m) {
    return m->path != NULL ? m->path : "this machine";
}

/* ---- numbers and addresses ---- */

static bool check_addresses(const found_machine *m, error *e) {
    for (int a = 0; a < m->device_count; a++)
        for (int b = 0; b < a; b++) {
            const topology_node *one = &m->devices[a].node, *other = &m->devices[b].node;
            if (one->bus[0] != '\0' && one->kind != TOPOLOGY_NUMA && strcmp(one->bus, other->bus) == 0)
                return error_set(e, EXIT_USAGE, "%s: two devices have the PCI address %s; expected one", origin(m),
                                 one->bus);
            if (one->kind == other->kind && one->number >= 0 && one->number == other->number &&
                (one->kind == TOPOLOGY_GPU || one->kind == TOPOLOGY_NUMA))
                return error_set(e, EXIT_USAGE, "%s: two %s have the number %d; expected one", origin(m),
                                 one->kind == TOPOLOGY_GPU ? "GPUs" : "NUMA nodes", one->number);
        }
    return true;
}

static bool number_taken(const found_machine *m, topology_kind kind, int number) {
    for (int d = 0; d < m->device_count; d++)
        if (m->devices[d].node.kind == kind && m->devices[d].node.number == number)
            return true;
    return false;
}

/* The lowest address without a number gets the lowest free number. */
static void number_devices(found_machine *m, topology_kind kind) {
    for (int number = 0;;) {
        topology_node *lowest = NULL;
        for (int d = 0; d < m->device_count; d++) {
            topology_node *n = &m->devices[d].node;
            if (n->kind == kind && n->number < 0 && (lowest == NULL || strcmp(n->bus, lowest->bus) < 0))
                lowest = n;
        }
        if (lowest == NULL)
            return;
        while (number_taken(m, kind, number))
            number++;
        lowest->number = number;
    }
}

/* ---- bridges ---- */

static bool ends_paths(const topology_node *n) {
    return n->kind == TOPOLOGY_GPU || n->kind == TOPOLOGY_CARD;
}

/* branches[d]: how many children of d lead to a GPU or a card. */
static bool count_branches(const found_machine *m, int *branches, error *e) {
    for (int d = 0; d < m->device_count; d++) {
        if (!ends_paths(&m->devices[d].node))
            continue;
        int depth = 0;
        for (int parent = m->devices[d].node.parent; parent >= 0; parent = m->devices[parent].node.parent) {
            if (++depth > TREE_DEPTH_MOST)
                return error_set(e, EXIT_USAGE, "%s: %s lies below more than %d bridges; expected fewer", origin(m),
                                 m->devices[d].node.bus, TREE_DEPTH_MOST);
            if (branches[parent]++ > 0)
                break; /* what is above knows of this branch already */
        }
    }
    return true;
}

/* Two links in a row carry what the slower one does; 0 is not known. */
static void merge_into(found_device *below, const found_device *bridge) {
    if (bridge->bandwidth > 0 && (below->bandwidth <= 0 || bridge->bandwidth < below->bandwidth)) {
        below->bandwidth = bridge->bandwidth;
        memcpy(below->label, bridge->label, sizeof below->label);
    }
    below->node.parent = bridge->node.parent;
}

/* Merges bridges that lead to one device only; bridges[d] counts the switches among them. */
static void merge_bridges(found_machine *m, const int *branches, int *bridges) {
    for (int d = 0; d < m->device_count; d++) {
        found_device *device = &m->devices[d];
        if (!ends_paths(&device->node) && (device->node.kind != TOPOLOGY_SWITCH || branches[d] < 2))
            continue;
        for (int p = device->node.parent; p >= 0 && m->devices[p].node.kind == TOPOLOGY_SWITCH && branches[p] < 2;
             p = device->node.parent) {
            bridges[d] += !m->devices[p].is_port;
            merge_into(device, &m->devices[p]);
        }
        if (device->bandwidth <= 0) {
            device->bandwidth = facts_pci(0, 0);
            snprintf(device->label, sizeof device->label, "x16 8 GT/s assumed");
        }
    }
}

/* ---- NVSwitches ---- */

/* The GPUs that a device's NVLinks lead to, as bits in order of listing; the devices that stand for the GPUs are
 * GPUS_MOST at most. */
static uint64_t gpus_at(const found_machine *m, int device) {
    uint64_t set = 0;
    for (int l = 0; l < m->nvlink_count; l++) {
        const found_nvlinks *links = &m->nvlinks[l];
        int other = links->from == device ? links->to : links->to == device ? links->from : -1, bit = 0;
        if (other < 0 || m->devices[other].node.kind != TOPOLOGY_GPU)
            continue;
        for (int d = 0; d < other; d++)
            bit += m->devices[d].node.kind == TOPOLOGY_GPU;
        set |= UINT64_C(1) << bit;
    }
    return set;
}

static bool has_trunks(const found_machine *m) {
    for (int l = 0; l < m->nvlink_count; l++)
        if (m->devices[m->nvlinks[l].from].node.kind == TOPOLOGY_NVSWITCH &&
            m->devices[m->nvlinks[l].to].node.kind == TOPOLOGY_NVSWITCH)
            return true;
    return false;
}

/* stands_for[d]: the device whose node d becomes part of. NVSwitches of the same GPUs work side by side as one. Where
 * the source lists no links between NVSwitches, all of them do: it lists only what it sees from the GPUs. */
static void merge_nvswitches(const found_machine *m, int *stands_for) {
    const bool trunks = has_trunks(m);
    for (int a = 0; a < m->device_count; a++) {
        stands_for[a] = a;
        if (m->devices[a].node.kind != TOPOLOGY_NVSWITCH)
            continue;
        for (int b = 0; b < a && stands_for[a] == a; b++)
            if (m->devices[b].node.kind == TOPOLOGY_NVSWITCH && (!trunks || gpus_at(m, a) == gpus_at(m, b)))
                stands_for[a] = stands_for[b];
    }
}

/* ---- the graph ---- */

typedef struct graph {
    const found_machine *m;
    topology *t;
    int *stands_for, *node_of; /* by found device; node_of -1: no node */
} graph;

static bool is_kept(const graph *g, const int *branches, int device) {
    const topology_kind kind = g->m->devices[device].node.kind;
    if (kind == TOPOLOGY_SWITCH)
        return branches[device] >= 2;
    if (kind == TOPOLOGY_NVSWITCH)
        return g->stands_for[device] == device && gpus_at(g->m, device) != 0;
    return true;
}

static int compare_nodes(const void *a, const void *b) {
    const topology_node *one = a, *other = b;
    if (one->kind != other->kind)
        return one->kind < other->kind ? -1 : 1;
    if (one->kind == TOPOLOGY_NUMA)
        return (one->number > other->number) - (one->number < other->number);
    return strcmp(one->bus, other->bus);
}

/* While sorting, a node's parent says which device it is. */
static void make_nodes(graph *g, const int *branches) {
    topology *t = g->t;
    t->nodes = memory_allocate((size_t)g->m->device_count + 1, sizeof *t->nodes);
    for (int d = 0; d < g->m->device_count; d++) {
        g->node_of[d] = -1;
        if (!is_kept(g, branches, d))
            continue;
        topology_node node = g->m->devices[d].node;
        node.parent = d;
        if (node.kind == TOPOLOGY_NVSWITCH) {
            node.number = 0;
            for (int other = d; other < g->m->device_count; other++)
                if (g->stands_for[other] == d && gpus_at(g->m, other) != 0) {
                    node.number++;
                    if (strcmp(g->m->devices[other].node.bus, node.bus) < 0)
                        memcpy(node.bus, g->m->devices[other].node.bus, sizeof node.bus);
                }
        }
        t->nodes[t->node_count++] = node;
    }
    qsort(t->nodes, (size_t)t->node_count, sizeof *t->nodes, compare_nodes);
    for (int n = 0; n < t->node_count; n++)
        g->node_of[t->nodes[n].parent] = n;
    for (int n = 0; n < t->node_count; n++) {
        int parent = g->m->devices[t->nodes[n].parent].node.parent;
        t->nodes[n].parent = parent >= 0 && t->nodes[n].kind != TOPOLOGY_NVSWITCH ? g->node_of[parent] : -1;
    }
    if (topology_count(t, TOPOLOGY_CARD) > 0)
        t->nodes[t->node_count++] = (topology_node){.kind = TOPOLOGY_NETWORK, .parent = -1, .socket = -1};
}

static topology_link *add_link(topology *t, topology_link link, double back) {
    t->links = memory_grow(t->links, (size_t)t->link_count + 2, sizeof *t->links);
    topology_link *pair = &t->links[t->link_count];
    t->link_count += 2;
    pair[0] = pair[1] = link;
    pair[1].from = link.to;
    pair[1].to = link.from;
    pair[1].bandwidth = back;
    return pair;
}

static void add_tree_links(const graph *g, const int *bridges) {
    for (int n = 0; n < g->t->node_count; n++)
        for (int d = 0; d < g->m->device_count; d++) {
            const found_device *device = &g->m->devices[d];
            if (g->node_of[d] != n || g->t->nodes[n].parent < 0)
                continue;
            topology_link link = {.kind = TOPOLOGY_PCI,
                                  .from = n,
                                  .to = g->t->nodes[n].parent,
                                  .bandwidth = device->bandwidth,
                                  .bridges = bridges[d]};
            memcpy(link.label, device->label, sizeof link.label);
            add_link(g->t, link, link.bandwidth);
        }
}

static void add_ports(const graph *g) {
    const int network = g->t->node_count - 1;
    for (int n = 0; n < network; n++)
        for (int d = 0; d < g->m->device_count && g->t->nodes[n].kind == TOPOLOGY_CARD; d++) {
            const found_device *card = &g->m->devices[d];
            if (g->node_of[d] != n)
                continue;
            topology_link link = {.kind = TOPOLOGY_PORT, .from = n, .to = network, .bandwidth = card->port};
            if (card->port <= 0) {
                link.bandwidth = card->bandwidth;
                snprintf(link.label, sizeof link.label, "speed not known, taken as its PCIe link's");
            }
            add_link(g->t, link, link.bandwidth);
        }
}

static void add_socket_links(const graph *g) {
    const int count = topology_count(g->t, TOPOLOGY_NUMA);
    for (int a = 0; a < count; a++)
        for (int b = a + 1; b < count; b++)
            add_link(g->t,
                     (topology_link){.kind = TOPOLOGY_SOCKET, .from = a, .to = b, .bandwidth = g->m->between_sockets},
                     g->m->between_sockets);
}

/* What node a says about its NVLinks to b, merged switches together. */
static found_nvlinks sum_nvlinks(const graph *g, int a, int b) {
    found_nvlinks sum = {.from = a, .to = b};
    for (int l = 0; l < g->m->nvlink_count; l++) {
        const found_nvlinks *links = &g->m->nvlinks[l];
        if (g->node_of[g->stands_for[links->from]] != a || g->node_of[g->stands_for[links->to]] != b)
            continue;
        sum.count += links->count;
        sum.bandwidth += links->bandwidth;
    }
    return sum;
}

static void add_nvlink_links(const graph *g) {
    for (int a = 0; a < g->t->node_count; a++)
        for (int b = a + 1; b < g->t->node_count; b++) {
            found_nvlinks there = sum_nvlinks(g, a, b), back = sum_nvlinks(g, b, a);
            if (there.bandwidth <= 0 && back.bandwidth <= 0)
                continue;
            /* A switch or a processor says nothing about its end. */
            const found_nvlinks *told = there.bandwidth > 0 ? &there : &back;
            topology_link link = {.kind = TOPOLOGY_NVLINK, .from = a, .to = b, .bandwidth = told->bandwidth};
            if (told->count > 0)
                snprintf(link.label, sizeof link.label, "%d NVLink%s", told->count, told->count > 1 ? "s" : "");
            else
                snprintf(link.label, sizeof link.label, "NVLink");
            add_link(g->t, link, back.bandwidth > 0 ? back.bandwidth : told->bandwidth);
        }
}

static bool build(graph *g, found_machine *m, int *branches, int *bridges, error *e) {
    if (!check_addresses(m, e) || !count_branches(m, branches, e))
        return false;
    number_devices(m, TOPOLOGY_GPU);
    number_devices(m, TOPOLOGY_CARD);
    merge_bridges(m, branches, bridges);
    merge_nvswitches(m, g->stands_for);
    make_nodes(g, branches);
    const int gpus = topology_count(g->t, TOPOLOGY_GPU);
    if (gpus > GPUS_MOST)
        return error_set(e, EXIT_USAGE, "%s: %d GPUs; expected at most %d", origin(m), gpus, GPUS_MOST);
    add_tree_links(g, bridges);
    add_socket_links(g);
    add_nvlink_links(g);
    if (topology_count(g->t, TOPOLOGY_CARD) > 0)
        add_ports(g);
    return true;
}

bool topology_finish(found_machine *m, topology *t, error *e) {
    *t = (topology){.unknown_targets = m->unknown_targets};
    const size_t count = (size_t)m->device_count + 1;
    int *numbers = memory_allocate(4 * count, sizeof *numbers);
    graph g = {.m = m, .t = t, .stands_for = numbers, .node_of = numbers + count};
    const bool good = build(&g, m, numbers + 2 * count, numbers + 3 * count, e);
    free(numbers);
    t->sockets = m->sockets;
    t->socket_count = m->socket_count;
    m->sockets = NULL;
    if (!good)
        topology_free(t);
    return good;
}
