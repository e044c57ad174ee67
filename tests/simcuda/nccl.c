/* NCCL on the host: the ranks of a communicator are processes, which meet in shared memory (nccl_region.h).
 *
 * A call queues work on its stream; the work moves on whenever the simulator's scheduler comes by, and a coin thrown
 * with the run's seed decides whether it does, so that a collective lands early or late. Ranks that call different
 * things at the same place are told what each called, and a stream that a group's calls do not share is refused. Sums
 * are rounded to the type of the data after every addition and start at another rank for every piece, as along a ring.
 */
#include "engine/device/half.h"
#include "nccl_graph.h"
#include "nccl_region.h"
#include "omission.h"
#include "simcuda.h"

#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum call_kind { CALL_ALL_GATHER, CALL_REDUCE_SCATTER, CALL_ALL_REDUCE, CALL_SEND, CALL_RECEIVE };

struct ncclComm {
    region shared;
    int rank, device;
    uint64_t ticket; /* of the round that is next */
    cudaStream_t stream;
    bool used, under_way; /* on that stream; a batch has begun and not finished */
    bool displaced;       /* its calls go to another stream than they name (omission.h) */
    bool slow;            /* SIMCUDA_NCCL_SLOW: its batches begin late */
    double begins;        /* the batch under way */
    bool aborted;
    ncclResult_t error;
    int users; /* batches queued, and the communicator's owner */
};

/* One call and how far it has come. */
typedef struct progress {
    call what;
    const char *send;
    char *receive;
    int peer;      /* of send and receive */
    uint64_t done; /* elements (of a piece per rank) */
    bool posted;   /* this round's input */
    bool finished;
} progress;

/* What is queued as one piece of work: a call, or all calls of a group. */
typedef struct batch {
    struct ncclComm *communicator;
    cudaStream_t stream;
    size_t count;
    progress *calls;
} batch;

static _Thread_local struct {
    int depth;
    batch *open; /* NULL: nothing was called in the group yet */
} group;

/* ---- types ---- */

static size_t type_bytes(int type) {
    return type == ncclFloat64 ? 8 : type == ncclFloat32 || type == ncclInt32 ? 4 : 2;
}

static const char *type_name(int type) {
    switch (type) {
    case ncclInt32:
        return "int32";
    case ncclFloat16:
        return "fp16";
    case ncclFloat32:
        return "fp32";
    case ncclFloat64:
        return "fp64";
    default:
        return "bf16";
    }
}

static uint16_t add_half(int type, uint16_t a, uint16_t b) {
    return type == ncclBfloat16 ? bf16_from_float(float_from_bf16(a) + float_from_bf16(b))
                                : f16_from_float(float_from_f16(a) + float_from_f16(b));
}

/* to[i] += from[i] */
static void add(char *to, const char *from, uint64_t count, int type) {
    for (uint64_t i = 0; i < count; i++) {
        const size_t at = i * type_bytes(type);
        if (type == ncclFloat64)
            *(double *)(void *)(to + at) += *(const double *)(const void *)(from + at);
        else if (type == ncclFloat32)
            *(float *)(void *)(to + at) += *(const float *)(const void *)(from + at);
        else if (type == ncclInt32)
            *(int32_t *)(void *)(to + at) += *(const int32_t *)(const void *)(from + at);
        else
            *(uint16_t *)(void *)(to + at) =
                add_half(type, *(uint16_t *)(void *)(to + at), *(const uint16_t *)(const void *)(from + at));
    }
}

/* ---- collectives ---- */

static const char *kind_name(int kind) {
    static const char *const names[] = {"ncclAllGather", "ncclReduceScatter", "ncclAllReduce", "ncclSend", "ncclRecv"};
    return names[kind];
}

static bool same_call(const call *a, const call *b) {
    return a->kind == b->kind && a->type == b->type && a->count == b->count;
}

static void refuse_mismatch(int rank, const call *a, int other, const call *b) {
    simcuda_refuse("NCCL: rank %d calls %s of %llu %s where rank %d calls %s of %llu %s", rank, kind_name(a->kind),
                   (unsigned long long)a->count, type_name(a->type), other, kind_name(b->kind),
                   (unsigned long long)b->count, type_name(b->type));
}

/* Elements of one rank's part that fit in a stage at once. */
static uint64_t piece_of(const struct ncclComm *c, const progress *p) {
    const uint64_t parts = p->what.kind == CALL_REDUCE_SCATTER ? (uint64_t)c->shared.ranks : 1;
    const uint64_t most = STAGE_BYTES / type_bytes(p->what.type) / parts, left = p->what.count - p->done;
    return left < most ? left : most;
}

static char *stage_of(const struct ncclComm *c, int rank) {
    return c->shared.stages + (size_t)rank * STAGE_BYTES;
}

static bool all_reached(const struct ncclComm *c, bool posted, uint64_t ticket) {
    for (int i = 0; i < c->shared.ranks; i++) {
        member *m = &c->shared.members[i];
        if (atomic_load(posted ? &m->posted : &m->taken) < ticket)
            return false;
    }
    return true;
}

static void post(struct ncclComm *c, progress *p) {
    member *own = &c->shared.members[c->rank];
    const size_t size = type_bytes(p->what.type), piece = piece_of(c, p) * size;
    const int parts = p->what.kind == CALL_REDUCE_SCATTER ? c->shared.ranks : 1;
    for (int i = 0; i < parts; i++) {
        const char *from = p->send + ((uint64_t)i * p->what.count + p->done) * size;
        simcuda_read(from, piece, kind_name(p->what.kind));
        memcpy(stage_of(c, c->rank) + (size_t)i * piece, from, piece);
    }
    own->now = p->what;
    atomic_store(&own->posted, c->ticket);
    p->posted = true;
}

static void take(struct ncclComm *c, progress *p) {
    const size_t size = type_bytes(p->what.type), piece = piece_of(c, p) * size;
    const int ranks = c->shared.ranks;
    if (p->what.kind == CALL_ALL_GATHER) {
        for (int i = 0; i < ranks; i++) {
            char *to = p->receive + ((uint64_t)i * p->what.count + p->done) * size;
            simcuda_write(to, piece, "ncclAllGather");
            memcpy(to, stage_of(c, i), piece);
        }
        return;
    }
    const size_t part = p->what.kind == CALL_REDUCE_SCATTER ? (size_t)c->rank * piece : 0;
    const int first = (int)(c->ticket % (uint64_t)ranks);
    char *sum = malloc(piece);
    memcpy(sum, stage_of(c, first) + part, piece);
    for (int i = 1; i < ranks; i++)
        add(sum, stage_of(c, (first + i) % ranks) + part, piece / size, p->what.type);
    simcuda_write(p->receive + p->done * size, piece, kind_name(p->what.kind));
    memcpy(p->receive + p->done * size, sum, piece);
    free(sum);
}

/* Moves one collective on by at most a round. */
static void advance_collective(struct ncclComm *c, progress *p) {
    if (!p->posted) {
        if (!all_reached(c, false, c->ticket - 1))
            return;
        post(c, p);
    }
    if (!all_reached(c, true, c->ticket))
        return;
    for (int i = 0; i < c->shared.ranks; i++)
        if (!same_call(&p->what, &c->shared.members[i].now))
            refuse_mismatch(c->rank, &p->what, i, &c->shared.members[i].now);
    const uint64_t piece = piece_of(c, p);
    take(c, p);
    p->done += piece;
    p->posted = false;
    p->finished = p->done == p->what.count;
    atomic_store(&c->shared.members[c->rank].taken, c->ticket++);
}

/* ---- messages ---- */

static void advance_message(struct ncclComm *c, progress *p) {
    const bool sends = p->what.kind == CALL_SEND;
    box *b = &c->shared.boxes[sends ? c->rank * c->shared.ranks + p->peer : p->peer * c->shared.ranks + c->rank];
    const uint64_t written = atomic_load(&b->written), read = atomic_load(&b->read);
    if (sends != (written == read))
        return;
    const size_t size = type_bytes(p->what.type), at = p->done * size;
    uint64_t piece = p->what.count - p->done;
    piece = piece < BOX_BYTES / size ? piece : BOX_BYTES / size;
    if (sends) {
        simcuda_read(p->send + at, piece * size, "ncclSend");
        memcpy(b->data, p->send + at, piece * size);
        b->now = p->what;
        atomic_store(&b->written, written + 1);
    } else {
        if (b->now.type != p->what.type || b->now.count != p->what.count)
            refuse_mismatch(c->rank, &p->what, p->peer, &b->now);
        simcuda_write(p->receive + at, piece * size, "ncclRecv");
        memcpy(p->receive + at, b->data, piece * size);
        atomic_store(&b->read, read + 1);
    }
    p->done += piece;
    p->finished = p->done == p->what.count;
}

/* ---- batches ---- */

static const double SLOW_SECONDS = 5e-3;

static double now_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void release(struct ncclComm *c) {
    if (--c->users > 0)
        return;
    region_leave(&c->shared);
    free(c);
}

static bool advance_batch(void *state) {
    batch *b = state;
    struct ncclComm *c = b->communicator;
    if (c->aborted)
        return true;
    if (simcuda_random() % 4 == 0)
        return false;
    if (!c->under_way)
        c->begins = c->slow ? now_seconds() + SLOW_SECONDS : 0;
    bool finished = c->under_way = true;
    if (c->slow && now_seconds() < c->begins)
        return false;
    for (size_t i = 0; i < b->count; i++) {
        progress *p = &b->calls[i];
        if (!p->finished && p->what.kind >= CALL_SEND)
            advance_message(c, p);
        else if (!p->finished)
            advance_collective(c, p);
        finished = finished && p->finished;
        if (!p->finished && p->what.kind < CALL_SEND)
            break; /* collectives of one communicator go in order */
    }
    if (!finished)
        return false;
    c->under_way = false;
    for (size_t i = 0; i < b->count; i++) { /* ready to begin anew, when a graph that holds it is launched again */
        b->calls[i].done = 0;
        b->calls[i].finished = false;
    }
    return true;
}

static void destroy_batch(void *state) {
    batch *b = state;
    release(b->communicator);
    free(b->calls);
    free(b);
}

static void queue_batch(batch *b) {
    struct ncclComm *c = b->communicator;
    if (c->used && c->stream != b->stream)
        simcuda_refuse(
            "NCCL: a communicator is used on two streams: the library would order its calls as they were made, "
            "and this project means to keep it on one");
    c->used = true;
    c->stream = b->stream;
    c->users++;
    simcuda_queue(b->stream, (simcuda_work){.name = kind_name(b->calls[0].what.kind),
                                            .advance = advance_batch,
                                            .destroy = destroy_batch,
                                            .state = b});
}

static ncclResult_t enter(struct ncclComm *c, cudaStream_t stream, progress p) {
    if (c == NULL || p.peer < 0 || p.peer >= c->shared.ranks)
        return ncclInvalidArgument;
    if (c->aborted)
        return ncclInvalidUsage;
    if (p.what.count == 0)
        return ncclSuccess;
    stream = c->displaced ? simcuda_another_stream(stream) : stream;
    batch *b = group.open;
    if (b == NULL) {
        b = malloc(sizeof *b);
        *b = (batch){.communicator = c, .stream = stream};
    }
    if (b->communicator != c || b->stream != stream)
        simcuda_refuse("NCCL: the calls of a group are on different communicators or streams");
    b->calls = realloc(b->calls, (b->count + 1) * sizeof *b->calls);
    b->calls[b->count++] = p;
    if (group.depth > 0)
        group.open = b;
    else
        queue_batch(b);
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void) {
    group.depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
    if (group.depth == 0)
        return ncclInvalidUsage;
    if (--group.depth == 0 && group.open != NULL) {
        queue_batch(group.open);
        group.open = NULL;
    }
    return ncclSuccess;
}

/* ---- calls ---- */

ncclResult_t ncclAllGather(const void *send, void *receive, size_t count, ncclDataType_t type, ncclComm_t communicator,
                           cudaStream_t stream) {
    return enter(communicator, stream,
                 (progress){.what = {CALL_ALL_GATHER, (int)type, count}, .send = send, .receive = receive});
}

ncclResult_t ncclReduceScatter(const void *send, void *receive, size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream) {
    if (operation != ncclSum)
        return ncclInvalidArgument;
    return enter(communicator, stream,
                 (progress){.what = {CALL_REDUCE_SCATTER, (int)type, count}, .send = send, .receive = receive});
}

ncclResult_t ncclAllReduce(const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t communicator, cudaStream_t stream) {
    if (operation != ncclSum)
        return ncclInvalidArgument;
    return enter(communicator, stream,
                 (progress){.what = {CALL_ALL_REDUCE, (int)type, count}, .send = send, .receive = receive});
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
    return enter(communicator, stream, (progress){.what = {CALL_SEND, (int)type, count}, .send = send, .peer = peer});
}

ncclResult_t ncclRecv(void *receive, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
    return enter(communicator, stream,
                 (progress){.what = {CALL_RECEIVE, (int)type, count}, .receive = receive, .peer = peer});
}

/* ---- communicators ---- */

ncclResult_t ncclGetVersion(int *version) {
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return (unsigned)result < sizeof texts / sizeof *texts ? texts[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t communicator) {
    (void)communicator;
    return "";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    uint64_t number;
    memset(id, 0, sizeof *id);
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
        return ncclSystemError;
    snprintf(id->internal, sizeof id->internal, "/simcuda-nccl-%016llx", (unsigned long long)number);
    return ncclSuccess;
}

/* Two ranks of a communicator on one GPU: the real library's ranks would wait for each other for ever, so it refuses.
 */
static bool device_is_shared(const region *r) {
    for (int i = 0; i < r->ranks; i++)
        for (int j = 0; j < i; j++)
            if (r->members[i].device == r->members[j].device)
                return true;
    return false;
}

/* The members are on one node: they meet in its memory. */
static void read_and_write_graphs(const region *r, int rank) {
    int devices[REGION_RANKS];
    graph_rings rings;
    const char *dump = getenv("NCCL_GRAPH_DUMP_FILE"), *who = getenv("NCCL_GRAPH_DUMP_FILE_RANK");
    for (int i = 0; i < r->ranks; i++)
        devices[i] = r->members[i].device;
    graph_read(getenv("NCCL_GRAPH_FILE"), devices, r->ranks, &rings);
    if (dump != NULL && rank == (who != NULL ? atoi(who) : 0))
        graph_write(dump, &rings);
}

/* Of communicators with a graph file (given) or without (searched), a test may want one sort to be slow. */
static bool begins_late(void) {
    const char *slow = getenv("SIMCUDA_NCCL_SLOW");
    return slow != NULL && strcmp(slow, getenv("NCCL_GRAPH_FILE") != NULL ? "given" : "searched") == 0;
}

ncclResult_t ncclCommInitRank(ncclComm_t *communicator, int ranks, ncclUniqueId id, int rank) {
    if (ranks < 1 || ranks > REGION_RANKS || rank < 0 || rank >= ranks || id.internal[0] != '/')
        return ncclInvalidArgument;
    const char *absent = getenv("SIMCUDA_NCCL_ABSENT");
    while (absent != NULL && atoi(absent) == rank)
        pause();
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess)
        return ncclUnhandledCudaError;
    struct ncclComm *c = calloc(1, sizeof *c);
    *c = (struct ncclComm){.rank = rank,
                           .device = device,
                           .ticket = 1,
                           .users = 1,
                           .displaced = simcuda_omits(OMIT_COMMUNICATOR),
                           .slow = begins_late()};
    if (!region_join(&c->shared, id.internal, ranks, rank, device)) {
        free(c);
        return ncclSystemError;
    }
    if (device_is_shared(&c->shared)) {
        release(c);
        return ncclInvalidUsage;
    }
    read_and_write_graphs(&c->shared, rank);
    *communicator = c;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t communicator) {
    return communicator == NULL ? ncclInvalidArgument : ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
    if (communicator == NULL)
        return ncclInvalidArgument;
    if (communicator->under_way)
        simcuda_refuse("NCCL: a communicator with unfinished calls is destroyed");
    release(communicator);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t communicator) {
    if (communicator == NULL)
        return ncclInvalidArgument;
    communicator->aborted = true;
    atomic_store(&communicator->shared.members[communicator->rank].aborted, true);
    release(communicator);
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t *error) {
    if (communicator == NULL)
        return ncclInvalidArgument;
    if (communicator->under_way && region_lost_rank(&communicator->shared) >= 0)
        communicator->error = ncclRemoteError;
    *error = communicator->error;
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t communicator, int *ranks) {
    *ranks = communicator->shared.ranks;
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t communicator, int *rank) {
    *rank = communicator->rank;
    return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t communicator, int *device) {
    *device = communicator->device;
    return ncclSuccess;
}
