#include "comm/topology.h"

#include "comm/topology_build.h"
#include "comm/topology_xml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* hwloc 1 wrote no version into its root element. */
static bool check_version(const char *path, const xml_element *root, error *e) {
    const char *version = xml_attribute(root, "version");
    if (version != NULL && atoi(version) >= 2)
        return true;
    return error_set(e, EXIT_USAGE,
                     "%s: written by hwloc 1, whose files lack NVLinks and say nothing about memory nodes that can be "
                     "read today; write it anew with hwloc 2: lstopo FILE.xml",
                     path);
}

static bool read_file(const char *path, const xml_element *root, found_machine *m, const char **source, error *e) {
    if (strcmp(root->name, "topology") == 0) {
        *source = "hwloc XML";
        return check_version(path, root, e) && topology_from_hwloc(path, m, e);
    }
    if (strcmp(root->name, "system") == 0) {
        *source = "NCCL XML";
        return topology_from_nccl(root, m, e);
    }
    return error_set(e, EXIT_USAGE,
                     "%s:%ld: the root element is <%s>; expected <topology> (hwloc's XML) or <system> (NCCL's topology "
                     "XML)",
                     path, root->line, root->name);
}

bool topology_read(const char *path, topology *t, error *e) {
    found_machine m = {.path = path};
    const char *source = "this machine";
    xml_element *root = path != NULL ? xml_read(path, e) : NULL;
    bool good = path != NULL ? root != NULL && read_file(path, root, &m, &source, e) : topology_from_hwloc(NULL, &m, e);
    xml_free(root);
    *t = (topology){0};
    good = good && topology_finish(&m, t, e);
    found_free(&m);
    if (!good)
        return false;
    snprintf(t->source, sizeof t->source, "%s", source);
    return true;
}

void topology_free(topology *t) {
    free(t->nodes);
    free(t->links);
    free(t->sockets);
    *t = (topology){0};
}

int topology_first(const topology *t, topology_kind kind) {
    int first = 0;
    while (first < t->node_count && t->nodes[first].kind < kind)
        first++;
    return first;
}

int topology_count(const topology *t, topology_kind kind) {
    int count = 0;
    for (int n = 0; n < t->node_count; n++)
        count += t->nodes[n].kind == kind;
    return count;
}

const char *topology_title(const topology *t, int node, char text[TOPOLOGY_TITLE]) {
    const topology_node *n = &t->nodes[node];
    switch (n->kind) {
    case TOPOLOGY_NUMA:
        snprintf(text, TOPOLOGY_TITLE, "NUMA node %d", n->number);
        break;
    case TOPOLOGY_SWITCH:
        snprintf(text, TOPOLOGY_TITLE, "PCIe switch %s", n->bus);
        break;
    case TOPOLOGY_NVSWITCH:
        if (topology_count(t, TOPOLOGY_NVSWITCH) == 1)
            snprintf(text, TOPOLOGY_TITLE, "NVSwitch");
        else
            snprintf(text, TOPOLOGY_TITLE, "NVSwitch %d", node - topology_first(t, TOPOLOGY_NVSWITCH));
        break;
    case TOPOLOGY_GPU:
        snprintf(text, TOPOLOGY_TITLE, "GPU %d", n->number);
        break;
    case TOPOLOGY_CARD:
        snprintf(text, TOPOLOGY_TITLE, "card %s", n->name[0] != '\0' ? n->name : n->bus);
        break;
    case TOPOLOGY_NETWORK:
        snprintf(text, TOPOLOGY_TITLE, "network");
        break;
    }
    return text;
}
