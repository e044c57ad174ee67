#include "engine/device/cuda/nccl.h"

#include "engine/checked.h"
#include "engine/device/cuda/device.h"
#include "engine/device/cuda/errors.h"
#include "engine/device/cuda/nccl_init.h"

#include <nccl.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)COMMUNICATOR_ID_BYTES == (int)NCCL_UNIQUE_ID_BYTES, "an id is NCCL's");

struct communicator {
    ncclComm_t nccl;
    cudaStream_t stream;
    int members;
};

static bool good(ncclResult_t found, ncclComm_t nccl, const char *call, error *e) {
    if (found == ncclSuccess || found == ncclInProgress)
        return true;
    return error_set_own(e, EXIT_LAUNCH, "%s: %s (%s); NCCL_DEBUG=WARN makes NCCL say more", call,
                         ncclGetErrorString(found), ncclGetLastError(nccl));
}

static ncclDataType_t type_of(dtype type) {
    static const ncclDataType_t types[DTYPE_COUNT] = {[DTYPE_F32] = ncclFloat32,
                                                      [DTYPE_F64] = ncclFloat64,
                                                      [DTYPE_BF16] = ncclBfloat16,
                                                      [DTYPE_F16] = ncclFloat16,
                                                      [DTYPE_I32] = ncclInt32};
    return types[type];
}

/* ---- communicators ---- */

static bool nccl_make_id(void *id, error *e) {
    ncclUniqueId made;
    if (!good(ncclGetUniqueId(&made), NULL, "ncclGetUniqueId", e))
        return false;
    memcpy(id, &made, sizeof made);
    return true;
}

/* Returns what it was before; NULL, also as value: not set. */
static char *set_variable(const char *name, const char *value) {
    const char *set = getenv(name);
    char *before = set != NULL ? memory_copy_string(set) : NULL;
    if (value != NULL)
        setenv(name, value, 1);
    else
        unsetenv(name);
    return before;
}

/* NCCL reads the files' names from the environment whenever it makes a communicator. */
static ncclResult_t init_with_rings(const nccl_membership *of, double seconds, ring_files rings, ncclComm_t *nccl) {
    static const char *const names[] = {"NCCL_GRAPH_FILE", "NCCL_GRAPH_DUMP_FILE"};
    const char *const paths[] = {rings.given, rings.used};
    char *users[] = {NULL, NULL};
    for (int i = 0; i < 2; i++)
        if (paths[i] != NULL)
            users[i] = set_variable(names[i], paths[i]);
    const ncclResult_t found = nccl_init(of, seconds, nccl);
    const bool ended = found != ncclInProgress; /* else its thread may be reading the environment */
    for (int i = 0; i < 2; i++) {
        if (paths[i] != NULL && ended)
            free(set_variable(names[i], users[i]));
        free(users[i]);
    }
    return found;
}

static bool nccl_open(device *d, int stream, const void *id, int members, int member, ring_files rings, double seconds,
                      communicator **opened, error *e) {
    nccl_membership of = {.members = members, .member = member};
    ncclComm_t nccl = NULL;
    memcpy(&of.id, id, sizeof of.id);
    const ncclResult_t found = init_with_rings(&of, seconds, rings, &nccl);
    if (found == ncclInProgress)
        return error_set_own(e, EXIT_LAUNCH,
                             "NCCL has not connected its %d ranks within [shard] timeout = %g seconds: one of them "
                             "hangs, or NCCL finds no way between their GPUs; NCCL_DEBUG=INFO makes it say how far it "
                             "has come",
                             members, seconds);
    if (!good(found, NULL, "ncclCommInitRank", e))
        return false;
    *opened = memory_allocate(1, sizeof **opened);
    **opened = (communicator){.nccl = nccl, .stream = cuda_stream(d, stream), .members = members};
    return true;
}

static void nccl_close(communicator *c) {
    ncclCommDestroy(c->nccl);
    free(c);
}

static void nccl_abort(communicator *c) {
    ncclCommAbort(c->nccl);
    free(c);
}

static bool nccl_healthy(communicator *c, error *e) {
    ncclResult_t state = ncclSuccess;
    return good(ncclCommGetAsyncError(c->nccl, &state), c->nccl, "ncclCommGetAsyncError", e) &&
           good(state, c->nccl, "NCCL", e);
}

/* ---- calls ---- */

static bool nccl_all_gather(communicator *c, const void *part, void *whole, int64_t count, dtype type, error *e) {
    return good(ncclAllGather(part, whole, (size_t)count, type_of(type), c->nccl, c->stream), c->nccl, "ncclAllGather",
                e);
}

static bool nccl_reduce_scatter(communicator *c, const void *whole, void *part, int64_t count, dtype type, error *e) {
    return good(ncclReduceScatter(whole, part, (size_t)count, type_of(type), ncclSum, c->nccl, c->stream), c->nccl,
                "ncclReduceScatter", e);
}

static bool nccl_all_reduce(communicator *c, const void *in, void *out, int64_t count, dtype type, error *e) {
    return good(ncclAllReduce(in, out, (size_t)count, type_of(type), ncclSum, c->nccl, c->stream), c->nccl,
                "ncclAllReduce", e);
}

static bool queue_parts(communicator *c, const exchange_part *with, dtype type, error *e) {
    for (int k = 0; k < c->members; k++) {
        const exchange_part *p = &with[k];
        if (p->send_count > 0 && !good(ncclSend(p->send, (size_t)p->send_count, type_of(type), k, c->nccl, c->stream),
                                       c->nccl, "ncclSend", e))
            return false;
        if (p->receive_count > 0 &&
            !good(ncclRecv(p->receive, (size_t)p->receive_count, type_of(type), k, c->nccl, c->stream), c->nccl,
                  "ncclRecv", e))
            return false;
    }
    return true;
}

static bool nccl_exchange(communicator *c, const exchange_part *with, dtype type, error *e) {
    if (!good(ncclGroupStart(), c->nccl, "ncclGroupStart", e))
        return false;
    const bool queued = queue_parts(c, with, type, e);
    error ending = {0}; /* a group is ended even if a call in it has failed, which is then what is told */
    const bool ended = good(ncclGroupEnd(), c->nccl, "ncclGroupEnd", queued ? e : &ending);
    return queued && ended;
}

static bool nccl_sum(device *d, int stream, const part_sum *sum, error *e) {
    cuda_sum_parts(sum, cuda_stream(d, stream));
    return cuda_launched("sum of parts", e);
}

static bool nccl_make_counters(int32_t count, int64_t **counters, error *e) {
    void *memory = NULL;
    const size_t bytes = (size_t)count * sizeof **counters;
    if (!cuda_good(cudaHostAlloc(&memory, bytes, cudaHostAllocMapped), "cudaHostAlloc", e))
        return false;
    memset(memory, 0, bytes);
    *counters = memory;
    return true;
}

static void nccl_drop_counters(int64_t *counters) {
    cudaFreeHost(counters);
}

static bool nccl_count(device *d, int stream, int64_t *counter, error *e) {
    cuda_count(counter, cuda_stream(d, stream));
    return cuda_launched("count", e);
}

const communication communication_nccl = {
    .name = "NCCL",
    .make_id = nccl_make_id,
    .open = nccl_open,
    .close = nccl_close,
    .abort = nccl_abort,
    .healthy = nccl_healthy,
    .all_gather = nccl_all_gather,
    .reduce_scatter = nccl_reduce_scatter,
    .all_reduce = nccl_all_reduce,
    .exchange = nccl_exchange,
    .sum = nccl_sum,
    .make_counters = nccl_make_counters,
    .drop_counters = nccl_drop_counters,
    .count = nccl_count,
};
