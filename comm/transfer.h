/* Private to comm/: moving and summing the parts that a collective pulls from other ranks' memory, on all threads of
 * the pool, in fixed tiles. */
#ifndef FSDP_COMM_TRANSFER_H
#define FSDP_COMM_TRANSFER_H

#include "comm/window.h"
#include "engine/device/cpu/pool.h"

/* One rank's part. */
typedef struct part {
    const void *from;
    void *to; /* copies only */
    int64_t bytes;
    int rank;       /* whose arena `from` lies in; NO_RANK: this process's own memory */
    int64_t offset; /* of `from` in that arena */
} part;

enum { NO_RANK = -1 };

/* to = from, for each part. */
void transfer_copy(pool *p, const window *v, const part *parts, int count);

/* out[i] = sum over the parts, fp32: runs of `odd` parts left to right, these sums pairwise; then added to out[i] if
 * `accumulate`. Parts are of the same size, count is odd times a power of two; out may be one of them. */
void transfer_sum(pool *p, const window *v, const part *parts, int count, int odd, float *out, bool accumulate);

#endif
