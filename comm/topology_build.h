/* How the readers hand over what they find: a device at a time, in any order. topology_finish makes the graph of it. */
#ifndef FSDP_COMM_TOPOLOGY_BUILD_H
#define FSDP_COMM_TOPOLOGY_BUILD_H

#include "comm/topology.h"

/* A device as a source lists it. */
typedef struct found_device {
    topology_node node; /* parent: index of a found device */
    double bandwidth;   /* of the link to the parent; 0: the source does not say */
    bool is_port;       /* a bridge that is one end of a link, no switch of its own */
    char label[48];     /* what that link is made of */
    double port;        /* cards: all ports together; 0: not known */
} found_device;

/* NVLinks as one end lists them. */
typedef struct found_nvlinks {
    int from, to; /* indices of found devices */
    int count;    /* 0: not known */
    double bandwidth;
} found_nvlinks;

typedef struct found_machine {
    const char *path; /* for messages */
    found_device *devices;
    int device_count;
    found_nvlinks *nvlinks;
    int nvlink_count;
    double between_sockets;
    topology_socket *sockets;
    int socket_count;
    int unknown_targets;
} found_machine;

/* Both return the index of what they add. */
int found_add(found_machine *m, found_device device);
int found_add_socket(found_machine *m, topology_socket socket);
void found_add_nvlinks(found_machine *m, int from, int to, int count, double bandwidth);
int found_by_bus(const found_machine *m, topology_kind kind, const char *bus); /* -1: none */

/* Errors: two devices with one address or number, a PCIe tree that is too deep. *t holds nothing then. */
bool topology_finish(found_machine *m, topology *t, error *e);
void found_free(found_machine *m);

/* The readers; *m is zero but for its path. The XML's readers get the file's tree too. */
struct xml_element;
bool topology_from_hwloc(const char *path, found_machine *m, error *e); /* path NULL: this machine */
bool topology_from_nccl(const struct xml_element *system, found_machine *m, error *e);

#endif
