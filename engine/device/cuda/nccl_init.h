/* Making a communicator of NCCL's, which by itself waits without end for members that do not come. */
#ifndef FSDP_ENGINE_DEVICE_CUDA_NCCL_INIT_H
#define FSDP_ENGINE_DEVICE_CUDA_NCCL_INIT_H

#include <nccl.h>

typedef struct nccl_membership {
    ncclUniqueId id;
    int members, member;
} nccl_membership;

/* ncclCommInitRank for the thread's current GPU, for at most so many seconds: then ncclInProgress. What is under way
 * stays so in a thread of its own; the process has nothing left but to end. */
ncclResult_t nccl_init(const nccl_membership *of, double seconds, ncclComm_t *made);

#endif
