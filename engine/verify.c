#include "engine/verify.h"

#include "engine/checked.h"
#include "engine/verify_bytes.h"

#include <stdlib.h>

/* What is known to have happened when an operation starts: per stream the last operation that is done, and the last
 * whose bytes other ranks have finished reading. Operations of the second round count on from the first. */
typedef struct knowledge {
    int64_t done[STREAM_COUNT], released[STREAM_COUNT];
} knowledge;

typedef struct verifier {
    const program *p;
    byte_map *bytes;
    knowledge *at_start;            /* [operations]: of the round under way */
    int32_t *first_hole;            /* [tensors]: in the padding list; -1: none */
    knowledge stream[STREAM_COUNT]; /* what the next operation of a stream knows from the one before it */
    int64_t round_start;
    error *e;
} verifier;

static const char *kind_name(const operation *o) {
    return operation_signature_of(o->kind)->name;
}

static bool lends(operation_kind kind) {
    return kind == OPERATION_ALL_GATHER || kind == OPERATION_REDUCE_SCATTER || kind == OPERATION_ALL_REDUCE;
}

/* ---- what happens before what ---- */

static void raise(int64_t *to, const int64_t *from) {
    for (int s = 0; s < STREAM_COUNT; s++)
        to[s] = maximum(to[s], from[s]);
}

/* What is known behind operation `other`, which is to be on stream s and earlier than i. */
static bool learn_from(verifier *v, int32_t i, int s, int32_t other, knowledge *k) {
    if (other < 0 || other >= i || (int)v->p->operations[other].stream != s)
        return error_set(v->e, EXIT_INTERNAL,
                         "verify: operation %d (%s) waits for %d on the %s stream, which is no earlier operation there",
                         i, kind_name(&v->p->operations[i]), other, stream_name((stream)s));
    raise(k->done, v->at_start[other].done);
    raise(k->released, v->at_start[other].released);
    k->done[s] = maximum(k->done[s], v->round_start + other);
    return true;
}

static bool learn(verifier *v, int32_t i, knowledge *k) {
    const operation *o = &v->p->operations[i];
    *k = v->stream[o->stream];
    for (int s = 0; s < STREAM_COUNT; s++) {
        if (o->wait[s] != NO_OPERATION && !learn_from(v, i, s, o->wait[s], k))
            return false;
        if (o->release[s] == NO_OPERATION)
            continue;
        if (!learn_from(v, i, s, o->release[s], k))
            return false;
        k->released[s] = maximum(k->released[s], v->round_start + o->release[s]);
    }
    v->at_start[i] = *k;
    v->stream[o->stream] = *k;
    v->stream[o->stream].done[o->stream] = v->round_start + i;
    return true;
}

/* ---- accesses ---- */

/* A mistake between operation i and an earlier one. */
static bool complain(const verifier *v, int32_t i, const tensor *x, int64_t other, const char *what) {
    const operation *o = &v->p->operations[i];
    if (other < 0)
        return error_set(v->e, EXIT_INTERNAL, "verify: operation %d (%s) %s %s", i, kind_name(o), what, x->name);
    const int32_t j = (int32_t)(other % v->p->operation_count);
    return error_set(v->e, EXIT_INTERNAL, "verify: operation %d (%s) %s %s, and operation %d (%s) comes before", i,
                     kind_name(o), what, x->name, j, kind_name(&v->p->operations[j]));
}

static int64_t not_before(const int64_t *accesses, const int64_t *known) {
    for (int s = 0; s < STREAM_COUNT; s++)
        if (accesses[s] > known[s])
            return accesses[s];
    return NEVER;
}

static tensor_id base_of(const program *p, tensor_id t) {
    return p->tensors[t].base == NO_TENSOR ? t : p->tensors[t].base;
}

/* What an access knows: on its own stream everything that comes before it in the list. */
static knowledge of_access(const verifier *v, int32_t i, const knowledge *k) {
    knowledge own = *k;
    const int s = (int)v->p->operations[i].stream;
    own.done[s] = maximum(own.done[s], v->round_start + i);
    return own;
}

static bool read_bytes(verifier *v, int32_t i, tensor_id t, const knowledge *k, int64_t begin, int64_t end) {
    const operation *o = &v->p->operations[i];
    for (int32_t at = byte_map_cut(v->bytes, begin, end); at < byte_map_end(v->bytes, end); at++) {
        byte_run *run = byte_map_run(v->bytes, at);
        if (run->owner != base_of(v->p, t))
            return complain(v, i, &v->p->tensors[t], run->last_write, "finds other bytes where it reads");
        const int64_t other = not_before(run->written, k->done);
        if (other != NEVER)
            return complain(v, i, &v->p->tensors[t], other, "does not wait for the writer of");
        run->read[o->stream] = v->round_start + i;
        if (lends(o->kind))
            run->lent[o->stream] = v->round_start + i;
    }
    return true;
}

static bool write_bytes(verifier *v, int32_t i, tensor_id t, const knowledge *k, bool adds) {
    const operation *o = &v->p->operations[i];
    const tensor *x = &v->p->tensors[t];
    const int64_t begin = x->address, end = begin + x->bytes;
    byte_run joint = byte_run_new(begin, end, base_of(v->p, t));
    for (int32_t at = byte_map_cut(v->bytes, begin, end); at < byte_map_end(v->bytes, end); at++) {
        const byte_run *run = byte_map_run(v->bytes, at);
        int64_t other = not_before(run->written, k->done);
        other = other != NEVER ? other : not_before(run->read, k->done);
        if (other != NEVER)
            return complain(v, i, x, other, "does not wait before it writes");
        other = not_before(run->lent, k->released);
        if (other != NEVER && other != v->round_start + i) /* a collective may work in place */
            return complain(v, i, x, other, "overwrites what other ranks may be reading:");
        if (adds && run->owner != joint.owner)
            return complain(v, i, x, run->last_write, "adds to other bytes than");
    }
    joint.written[o->stream] = joint.last_write = v->round_start + i;
    if (o->kind == OPERATION_ALL_REDUCE) /* other ranks read the slice of it that this rank has summed */
        joint.lent[o->stream] = v->round_start + i;
    byte_map_replace(v->bytes, &joint);
    return true;
}

static bool is_hole_of(const program *p, int32_t hole, tensor_id t) {
    return hole < p->padding_count && p->padding[hole].tensor == t;
}

/* Reads a tensor but for its declared padding, which nothing gives a value. */
static bool read_tensor(verifier *v, int32_t i, tensor_id t, const knowledge *k) {
    const tensor *x = &v->p->tensors[t];
    const tensor_id storage = base_of(v->p, t);
    const int64_t base = x->address - x->offset;
    int64_t begin = x->address, end = x->address + x->bytes;
    for (int32_t h = v->first_hole[storage]; h >= 0 && is_hole_of(v->p, h, storage) && begin < end; h++) {
        const padding *hole = &v->p->padding[h];
        const int64_t from = base + hole->offset, to = from + hole->bytes;
        if (to <= begin || from >= end)
            continue;
        if (from > begin && !read_bytes(v, i, t, k, begin, from))
            return false;
        begin = to;
    }
    return begin >= end || read_bytes(v, i, t, k, begin, end);
}

/* ---- what an operation declares ---- */

/* An operation touches as many bytes as the shapes of its operands have: they must be those that the tensor declares,
 * within the tensor that it is a view of and within the arena. */
static bool has_bytes(const verifier *v, int32_t i, tensor_id t) {
    if (t == NO_TENSOR)
        return true;
    const tensor *x = &v->p->tensors[t], *base = &v->p->tensors[base_of(v->p, t)];
    int64_t touched = dtype_bytes(x->type);
    for (int d = 0; d < OPERAND_DIMENSIONS; d++)
        touched *= x->shape[d];
    if (touched != x->bytes)
        return error_set(v->e, EXIT_INTERNAL, "verify: operation %d (%s) touches %lld bytes of %s, which declares %lld",
                         i, kind_name(&v->p->operations[i]), (long long)touched, x->name, (long long)x->bytes);
    const bool inside =
        x == base || (x->address == base->address + x->offset && x->offset >= 0 && x->offset + x->bytes <= base->bytes);
    if (!inside || x->address < 0 || x->address + x->bytes > v->p->arena_bytes)
        return error_set(v->e, EXIT_INTERNAL, "verify: operation %d (%s) touches %s, which lies outside of %s", i,
                         kind_name(&v->p->operations[i]), x->name, inside ? "the arena" : base->name);
    return true;
}

static bool is_declared(verifier *v, int32_t i) {
    const operation *o = &v->p->operations[i];
    error e = {0};
    if (!program_accepts(v->p, o, &e))
        return error_set(v->e, EXIT_INTERNAL, "verify: operation %d: %s", i, e.message);
    for (int in = 0; in < OPERATION_INPUTS; in++)
        if (!has_bytes(v, i, o->in[in]))
            return false;
    for (int out = 0; out < OPERATION_OUTPUTS; out++)
        if (!has_bytes(v, i, o->out[out]))
            return false;
    return has_bytes(v, i, o->workspace);
}

static bool check_operation(verifier *v, int32_t i) {
    const operation *o = &v->p->operations[i];
    knowledge k;
    if (!is_declared(v, i) || !learn(v, i, &k))
        return false;
    const knowledge own = of_access(v, i, &k);
    for (int in = 0; in < OPERATION_INPUTS; in++)
        if (o->in[in] != NO_TENSOR && !read_tensor(v, i, o->in[in], &own))
            return false;
    for (int out = 0; out < OPERATION_OUTPUTS; out++)
        if (o->out[out] != NO_TENSOR && !write_bytes(v, i, o->out[out], &own, o->accumulate >> out & 1))
            return false;
    return o->workspace == NO_TENSOR || write_bytes(v, i, o->workspace, &own, false);
}

/* ---- rounds ---- */

/* All streams join at the end of a step, and every rank has read what it wanted. */
static void join(verifier *v) {
    const int64_t last = v->round_start + v->p->operation_count - 1;
    for (int s = 0; s < STREAM_COUNT; s++)
        for (int other = 0; other < STREAM_COUNT; other++)
            v->stream[s].done[other] = v->stream[s].released[other] = last;
    v->round_start += v->p->operation_count;
}

static void begin(verifier *v) {
    for (int s = 0; s < STREAM_COUNT; s++)
        for (int other = 0; other < STREAM_COUNT; other++)
            v->stream[s].done[other] = v->stream[s].released[other] = NEVER;
    for (tensor_id t = 0; t < v->p->tensor_count; t++) {
        const tensor *x = &v->p->tensors[t];
        if (!x->persistent || x->base != NO_TENSOR)
            continue;
        const byte_run filled = byte_run_new(x->address, x->address + x->bytes, t); /* before the first step */
        byte_map_cut(v->bytes, filled.begin, filled.end);
        byte_map_replace(v->bytes, &filled);
    }
}

/* Where each tensor's padding starts in the list; a tensor's padding is declared in one go. */
static int32_t *first_holes(const program *p) {
    int32_t *first = memory_allocate((size_t)p->tensor_count, sizeof *first);
    for (tensor_id t = 0; t < p->tensor_count; t++)
        first[t] = -1;
    for (int32_t h = p->padding_count - 1; h >= 0; h--)
        first[p->padding[h].tensor] = h;
    return first;
}

bool verify(const program *p, error *e) {
    verifier v = {.p = p, .e = e, .bytes = byte_map_create(p->arena_bytes)};
    v.at_start = memory_allocate((size_t)p->operation_count, sizeof *v.at_start);
    v.first_hole = first_holes(p);
    begin(&v);
    bool good = true;
    for (int round = 0; round < 2 && good; round++) {
        for (int32_t i = 0; i < p->operation_count && good; i++)
            good = check_operation(&v, i);
        join(&v);
    }
    free(v.at_start);
    free(v.first_hole);
    byte_map_destroy(v.bytes);
    return good;
}
