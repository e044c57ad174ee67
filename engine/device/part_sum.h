/* The sum of what the members of a group have sent. */
#ifndef FSDP_ENGINE_DEVICE_PART_SUM_H
#define FSDP_ENGINE_DEVICE_PART_SUM_H

#include "engine/device/dtype.h"

#include <stdbool.h>
#include <stdint.h>

/* out[i] = the sum over members of parts[member][i], then added to out[i] if `adds`: runs of `odd` members from first
 * to last, these sums pairwise, in fp32. members is odd times a power of two, at most 1,024 runs. */
typedef struct part_sum {
    const void *parts; /* [members], part_bytes from one to the next, which is a multiple of 16 */
    int64_t part_bytes;
    dtype part_type; /* fp32, bf16 or fp16 */
    int members, odd;
    void *out;
    dtype out_type; /* fp32, or part_type */
    int64_t count;
    bool adds;
} part_sum;

#endif
