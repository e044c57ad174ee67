/* Search in the segments of a shard, which ascend and do not overlap. */
#ifndef FSDP_ENGINE_DEVICE_CUDA_KERNELS_SEGMENTS_CUH
#define FSDP_ENGINE_DEVICE_CUDA_KERNELS_SEGMENTS_CUH

#include "engine/device/cuda/kernels.h"

#include "cuda_instructions.h"

typedef struct segment_list {
    const segment *segments; /* in device memory */
    int64_t count;
} segment_list;

/* Index of the first segment that ends after `element`. */
static __device__ int64_t first_segment_after(const segment_list &list, int64_t element) {
    int64_t low = 0, high = list.count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (list.segments[middle].offset + list.segments[middle].count <= element)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

#endif
