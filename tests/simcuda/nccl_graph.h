/* The file that NCCL_GRAPH_FILE names, as NCCL takes it at the creation of a communicator inside one node. */
#ifndef SIMCUDA_NCCL_GRAPH_H
#define SIMCUDA_NCCL_GRAPH_H

/* Refuses, saying why, a file that is no graph file, or whose ring graph (id 0) does not run through exactly the GPUs
 * of the communicator in each of its channels. */
void graph_check(const char *path, const int *devices, int count);

#endif
