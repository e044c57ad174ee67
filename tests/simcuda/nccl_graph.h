/* The files that NCCL_GRAPH_FILE and NCCL_GRAPH_DUMP_FILE name, as NCCL reads and writes them at the creation of a
 * communicator inside one node. */
#ifndef SIMCUDA_NCCL_GRAPH_H
#define SIMCUDA_NCCL_GRAPH_H

enum { GRAPH_DEVICES_MOST = 64, GRAPH_RINGS_MOST = 64 };

typedef struct graph_rings {
    int devices; /* in each */
    int count;
    int order[GRAPH_RINGS_MOST][GRAPH_DEVICES_MOST];
} graph_rings;

/* Reads the ring graph (id 0). Refuses, saying why, a file that is no graph file, or whose rings do not run through
 * exactly these devices. NULL or a file without one: a ring in the devices' order. */
void graph_read(const char *path, const int *devices, int count, graph_rings *rings);

/* Each ring begins anywhere, and all may be there twice: the library promises neither. SIMCUDA_NCCL_RINGS=other: the
 * last one is another ring. */
void graph_write(const char *path, const graph_rings *rings);

#endif
