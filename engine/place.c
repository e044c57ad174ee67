#include "engine/place.h"

#include "engine/checked.h"
#include "engine/hold.h"
#include "engine/pack.h"

#include <stdlib.h>

/* Holding what is being reduced may cost a tenth of what comes and goes. */
enum { HOLD_SHARE = 10 };

/* What comes and goes, in classes that are packed alike. A root is a unit outside of the blocks: embedding and head. */
typedef enum storage_class {
    CLASS_ROOT_GRADIENT,
    CLASS_BLOCK_GRADIENT,
    CLASS_ROOT_GATHERED,
    CLASS_BLOCK_GATHERED,
    CLASS_GRADIENT_SHARD,
    CLASS_LOGITS,
    CLASS_FORWARD,
    CLASS_BACKWARD
} storage_class;

static storage_class class_of(const bool *root, const tensor *x, const operation *first) {
    switch (x->role) {
    case ROLE_FLAT_GRADIENT:
        return root[x->unit] ? CLASS_ROOT_GRADIENT : CLASS_BLOCK_GRADIENT;
    case ROLE_GATHERED:
        return root[x->unit] ? CLASS_ROOT_GATHERED : CLASS_BLOCK_GATHERED;
    case ROLE_GRADIENT_SHARD:
        return CLASS_GRADIENT_SHARD;
    default:
        break;
    }
    if (first->chunk != NO_CHUNK && first->kind == OPERATION_MATMUL)
        return CLASS_LOGITS;
    return first->phase == PHASE_FORWARD ? CLASS_FORWARD : CLASS_BACKWARD;
}

/* The storages that come and go within a step, to be packed. */
typedef struct packing {
    block *blocks;
    tensor_id *storages; /* [count]: of each block */
    int32_t count;
} packing;

static packing collect(const program *p, const lifetime *lives) {
    packing k = {.blocks = memory_allocate((size_t)p->tensor_count, sizeof *k.blocks),
                 .storages = memory_allocate((size_t)p->tensor_count, sizeof *k.storages)};
    bool *root = units_outside_blocks(p);
    for (tensor_id t = 0; t < p->tensor_count; t++) {
        const tensor *x = &p->tensors[t];
        if (lives[t].storage != t || x->persistent || lives[t].first == NO_OPERATION)
            continue;
        k.blocks[k.count] = (block){.first = lives[t].first,
                                    .last = lives[t].last,
                                    .bytes = round_up(lives[t].bytes, PLACE_ALIGNMENT),
                                    .class = class_of(root, x, &p->operations[lives[t].first])};
        k.storages[k.count++] = t;
    }
    free(root);
    return k;
}

static void release(packing *k) {
    free(k->blocks);
    free(k->storages);
}

static bool is_persistent_storage(const tensor *x) {
    return x->persistent && x->base == NO_TENSOR;
}

static int64_t persistent_bytes_of(const program *p) {
    int64_t bytes = 0;
    for (tensor_id t = 0; t < p->tensor_count; t++)
        if (is_persistent_storage(&p->tensors[t]))
            bytes += round_up(p->tensors[t].bytes, PLACE_ALIGNMENT);
    return bytes;
}

static void place_persistent(program *p) {
    int64_t at = 0;
    for (tensor_id t = 0; t < p->tensor_count; t++) {
        tensor *x = &p->tensors[t];
        if (!is_persistent_storage(x))
            continue;
        x->address = at;
        at += round_up(x->bytes, PLACE_ALIGNMENT);
    }
    p->persistent_bytes = at;
}

static void give_addresses(program *p, const lifetime *lives, const packing *k) {
    for (int32_t i = 0; i < k->count; i++)
        p->tensors[k->storages[i]].address = p->persistent_bytes + k->blocks[i].address;
    for (tensor_id t = 0; t < p->tensor_count; t++) {
        tensor *x = &p->tensors[t];
        x->address = p->tensors[lives[t].storage].address + (x->base == NO_TENSOR ? 0 : x->offset);
    }
}

/* Places what comes and goes, held as long as the bytes that live at once stay within the limit. */
static void place_held(program *p, int64_t limit) {
    lifetime *lives = lifetimes_of(p);
    p->shortened_holds = hold_reductions(p, lives, limit);
    packing k = collect(p, lives);
    p->held_bytes = p->persistent_bytes + pack_bound(k.blocks, k.count, p->operation_count);
    p->arena_bytes = p->persistent_bytes + pack(k.blocks, k.count, p->operation_count);
    give_addresses(p, lives, &k);
    release(&k);
    free(lives);
}

int64_t place_bound(const program *p) {
    lifetime *lives = lifetimes_of(p);
    packing k = collect(p, lives);
    const int64_t bound = persistent_bytes_of(p) + pack_bound(k.blocks, k.count, p->operation_count);
    release(&k);
    free(lives);
    return bound;
}

void place(program *p, int64_t budget) {
    place_persistent(p);
    p->live_bytes = place_bound(p);
    const int64_t least = p->live_bytes - p->persistent_bytes, ample = least + least / HOLD_SHARE;
    place_held(p, ample);
    if (p->arena_bytes > budget && p->live_bytes <= budget)
        place_held(p, least);
}

void place_workspaces(program *p, device *d) {
    for (int32_t i = 0; i < p->operation_count; i++) {
        operation *o = &p->operations[i];
        if (o->stream != STREAM_COMPUTE) /* collectives and copies are not the device's kernels */
            continue;
        launch l = program_launch(p, o, NULL);
        int64_t bytes = (int64_t)d->functions->workspace(d, &l);
        if (bytes > 0)
            o->workspace = program_tensor(p, "workspace", ROLE_WORKSPACE, DTYPE_F32, 1,
                                          (int64_t[]){divide_up(bytes, dtype_bytes(DTYPE_F32))});
    }
}
