/* The GPU of a rank: which one it is, and whether this program can use it. */
#ifndef FSDP_ENGINE_DEVICE_CUDA_GPU_H
#define FSDP_ENGINE_DEVICE_CUDA_GPU_H

#include "engine/device/cuda/peak.h"
#include "engine/error.h"

typedef struct gpu {
    int number; /* among those that the process sees */
    multiprocessors processors;
    char description[160]; /* "NVIDIA H200, 140 GiB, 132 multiprocessors, driver for CUDA 13.0" */
    char identity[48];     /* the same in every process of the node that sees this GPU */
    char bus_address[16];  /* "0000:1b:00.0"; empty: not known */
} gpu;

/* Chooses the GPU of this number, modulo how many there are, and makes the GPU current for the process. Says no where
 * there is no driver, an old one, no GPU, or one too old. */
bool gpu_choose(int number, gpu *chosen, error *e);

#endif
