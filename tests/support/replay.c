#include "support/replay.h"

#include "engine/checked.h"
#include "engine/order.h"

#include <stdlib.h>
#include <string.h>

/* What a kernel does, and a name for it that it keeps when it moves in the list. */
typedef struct kernel {
    operation operation;
    int32_t name;
} kernel;

struct replay {
    const program *p;
    kernel *kernels;     /* [operations] */
    int32_t *first_hole; /* [tensors]: in the list of padding */
    uint64_t expected;
};

/* What lies in a slot: who wrote it (a hash of all that it read), and at which of the bytes that it wrote there. */
typedef struct content {
    uint64_t writer;
    int64_t at;
} content;

/* The addresses at which anything that is accessed begins or ends cut the arena into slots, which are accessed as
 * wholes. */
typedef struct memory {
    int64_t *edges; /* ascending, all different; slot i is edges[i] .. edges[i + 1] */
    int32_t edge_count;
    int32_t *first, *behind; /* [tensors]: their slots */
    content *slots;
} memory;

static uint64_t mix(uint64_t a, uint64_t b) {
    uint64_t x = a * UINT64_C(0x9E3779B97F4A7C15) + b + 1;
    x ^= x >> 32;
    x *= UINT64_C(0xD6E8FEB86659FD93);
    return x ^ x >> 29;
}

/* Bytes that a kernel touches, whatever the tensor declares. */
static int64_t touched_bytes(const tensor *x) {
    return x->shape[0] * x->shape[1] * x->shape[2] * dtype_bytes(x->type);
}

/* ---- memory ---- */

static int compare_edges(const void *left, const void *right) {
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static int32_t slot_at(const memory *m, int64_t address) {
    const int64_t *found = bsearch(&address, m->edges, (size_t)m->edge_count, sizeof address, compare_edges);
    return (int32_t)(found - m->edges);
}

static memory memory_of(const program *p) {
    memory m = {.edges = memory_allocate(2 * (size_t)(p->tensor_count + p->padding_count), sizeof *m.edges),
                .first = memory_allocate((size_t)p->tensor_count, sizeof *m.first),
                .behind = memory_allocate((size_t)p->tensor_count, sizeof *m.behind)};
    int32_t count = 0;
    for (tensor_id t = 0; t < p->tensor_count; t++) {
        m.edges[count++] = p->tensors[t].address;
        m.edges[count++] = p->tensors[t].address + touched_bytes(&p->tensors[t]);
    }
    for (int32_t h = 0; h < p->padding_count; h++) {
        const int64_t begin = p->tensors[p->padding[h].tensor].address + p->padding[h].offset;
        m.edges[count++] = begin;
        m.edges[count++] = begin + p->padding[h].bytes;
    }
    qsort(m.edges, (size_t)count, sizeof *m.edges, compare_edges);
    for (int32_t i = 0; i < count; i++)
        if (i == 0 || m.edges[i] != m.edges[m.edge_count - 1])
            m.edges[m.edge_count++] = m.edges[i];
    for (tensor_id t = 0; t < p->tensor_count; t++) {
        m.first[t] = slot_at(&m, p->tensors[t].address);
        m.behind[t] = slot_at(&m, p->tensors[t].address + touched_bytes(&p->tensors[t]));
    }
    m.slots = memory_allocate((size_t)m.edge_count, sizeof *m.slots);
    return m;
}

static void memory_clear(memory *m) {
    for (int32_t s = 0; s < m->edge_count; s++)
        m->slots[s] = (content){0, m->edges[s]};
}

static void memory_release(memory *m) {
    free(m->edges);
    free(m->first);
    free(m->behind);
    free(m->slots);
}

/* ---- kernels ---- */

/* Whether a byte of a tensor, counted from the start of its base, is declared padding. */
static bool is_padding(const replay *r, tensor_id base, int64_t offset) {
    for (int32_t h = r->first_hole[base]; h < r->p->padding_count && r->p->padding[h].tensor == base; h++)
        if (offset >= r->p->padding[h].offset && offset < r->p->padding[h].offset + r->p->padding[h].bytes)
            return true;
    return false;
}

/* Hash of what an operand finds, but for padding. It does not depend on where the bytes lie or how they are cut. */
static uint64_t hash_of(const replay *r, const memory *m, tensor_id t) {
    const tensor *x = &r->p->tensors[t];
    uint64_t h = (uint64_t)touched_bytes(x);
    content expected = {0, -1}; /* what continues the slot before this one */
    for (int32_t s = m->first[t]; s < m->behind[t]; s++) {
        const int64_t offset = m->edges[s] - x->address;
        if (is_padding(r, program_base(r->p, t), x->offset + offset))
            continue;
        const content c = m->slots[s];
        if (c.writer != expected.writer || c.at - offset != expected.at)
            h = mix(mix(mix(h, c.writer), (uint64_t)c.at), (uint64_t)offset);
        expected = (content){c.writer, c.at - offset};
    }
    return h;
}

static void write(const replay *r, memory *m, tensor_id t, uint64_t writer, bool adds) {
    for (int32_t s = m->first[t]; s < m->behind[t]; s++) {
        const int64_t offset = m->edges[s] - r->p->tensors[t].address;
        const content before = m->slots[s];
        m->slots[s].writer = adds ? mix(mix(writer, before.writer), (uint64_t)(before.at - offset)) : writer;
        m->slots[s].at = offset;
    }
}

/* Returns what a copy to the host sees, 0 for other kernels. */
static uint64_t execute(const replay *r, memory *m, int32_t i) {
    const operation *o = &r->kernels[i].operation;
    uint64_t h = mix((uint64_t)o->kind + 1, (uint64_t)r->kernels[i].name);
    for (int k = 0; k < OPERATION_INPUTS; k++)
        if (o->in[k] != NO_TENSOR)
            h = mix(h, hash_of(r, m, o->in[k]));
    for (int k = 0; k < OPERATION_OUTPUTS; k++)
        if (o->out[k] != NO_TENSOR)
            write(r, m, o->out[k], mix(h, (uint64_t)k), o->accumulate >> k & 1);
    if (o->workspace != NO_TENSOR)
        write(r, m, o->workspace, h, false);
    return o->kind == OPERATION_COPY_OUT ? h : 0;
}

/* What persistent tensors hold after a step and the host gets. Seed 0: in the order of the list. */
static uint64_t play(const replay *r, memory *m, uint64_t seed) {
    const program *p = r->p;
    int32_t *order = seed == 0 ? NULL : order_pick(p, seed);
    uint64_t h = 0;
    memory_clear(m);
    for (int32_t i = 0; i < p->operation_count; i++)
        h += execute(r, m, order == NULL ? i : order[i]);
    for (tensor_id t = 0; t < p->tensor_count; t++)
        if (p->tensors[t].persistent && p->tensors[t].base == NO_TENSOR)
            h = mix(h, hash_of(r, m, t));
    free(order);
    return h;
}

/* ---- replays ---- */

replay *replay_create(const program *p) {
    replay *r = memory_allocate(1, sizeof *r);
    *r = (replay){.p = p,
                  .kernels = memory_allocate((size_t)p->operation_count, sizeof *r->kernels),
                  .first_hole = memory_allocate((size_t)p->tensor_count, sizeof *r->first_hole)};
    for (int32_t i = 0; i < p->operation_count; i++)
        r->kernels[i] = (kernel){p->operations[i], i};
    for (tensor_id t = 0; t < p->tensor_count; t++)
        r->first_hole[t] = p->padding_count;
    for (int32_t h = p->padding_count - 1; h >= 0; h--)
        r->first_hole[p->padding[h].tensor] = h;
    memory m = memory_of(p);
    r->expected = play(r, &m, 0);
    memory_release(&m);
    return r;
}

void replay_destroy(replay *r) {
    free(r->kernels);
    free(r->first_hole);
    free(r);
}

void replay_swapped(replay *r, int32_t i) {
    const kernel kept = r->kernels[i];
    r->kernels[i] = r->kernels[i + 1];
    r->kernels[i + 1] = kept;
}

bool replay_differs(const replay *r, int orders) {
    memory m = memory_of(r->p);
    bool differs = false;
    for (int seed = 0; seed <= orders && !differs; seed++)
        differs = play(r, &m, (uint64_t)seed) != r->expected;
    memory_release(&m);
    return differs;
}
