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
    int64_t offset; /* of `from` in that arena; a multiple of the element; to sum: the same for all parts */
} part;

enum { NO_RANK = -1 };

/* to = from, for each part. */
void transfer_copy(pool *p, const window *v, const part *parts, int count);

/* A sum of parts of one type, fp32 or bf16. */
typedef struct summation {
    const part *parts;
    int count,
        odd; /* runs of `odd` parts are summed left to right, these sums pairwise; count is odd times a power of two */
    dtype type;
    void *out; /* may be one of the parts, if of their type */
    dtype out_type;
    bool accumulate; /* the sum is added to what is there */
} summation;

/* out[i] = sum over the parts, in fp32, rounded when it is stored. Parts are of the same size. */
void transfer_sum(pool *p, const window *v, const summation *s);

#endif
