/* The segments of a shard, on their way to a kernel: a few at a time, by value, so that they need no memory of their
 * own on the device and a recorded graph holds them. Operations with more are queued as several launches. */
#ifndef FSDP_ENGINE_DEVICE_CUDA_KERNELS_SEGMENTS_CUH
#define FSDP_ENGINE_DEVICE_CUDA_KERNELS_SEGMENTS_CUH

#include "engine/checked.h"
#include "engine/device/operation.h"

/* 64 segments are 1.5 of the 4 KB that a kernel's arguments may take. */
enum { SEGMENTS = 64 };

typedef struct segment_list {
    int count;
    segment segments[SEGMENTS];
} segment_list;

/* The part of the launch's segments that begins at `first`. */
static inline segment_list segments_from(const attributes *a, int64_t first) {
    segment_list list = {};
    list.count = (int)minimum(a->segment_count - first, SEGMENTS);
    for (int i = 0; i < list.count; i++)
        list.segments[i] = a->segments[first + i];
    return list;
}

#endif
