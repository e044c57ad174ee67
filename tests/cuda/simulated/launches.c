#include "cuda/simulated/launches.h"

#include "engine/device/cuda/device.h"
#include "engine/error.h"

enum { GUARD = 256 };

static void must(cudaError_t code) {
    check(code == cudaSuccess, "simulated device: %s", cudaGetErrorString(code));
}

/* A block of device memory: GUARD bytes, `shift` bytes, the data, GUARD bytes. Only the data may be touched. */
typedef struct block {
    char *base, *data;
    size_t bytes;
} block;

static block block_make(size_t bytes, size_t shift) {
    block b = {.bytes = bytes};
    void *base;
    must(cudaMalloc(&base, bytes + shift + 2 * GUARD));
    b.base = base, b.data = b.base + GUARD + shift;
    simcuda_forbid(b.base, GUARD + shift);
    simcuda_forbid(b.data + bytes, GUARD);
    return b;
}

static void block_free(block *b) {
    simcuda_allow(b->base, (size_t)(b->data - b->base) + b->bytes + GUARD);
    must(cudaFree(b->base));
}

static block block_of(const operand *o, bool written, int64_t shift) {
    block b = block_make(cuda_operand_bytes(o), (size_t)(shift * dtype_bytes(o->type)));
    if (written)
        must(cudaMemcpy(b.data, o->data, b.bytes, cudaMemcpyHostToDevice));
    return b;
}

/* What a launch occupies on the device. */
typedef struct blocks {
    block in[OPERATION_INPUTS], out[OPERATION_OUTPUTS], workspace, segments, columns;
} blocks;

/* The operand whose bytes output o takes; NULL: it has its own. */
static const block *shared_block(const launch *l, const blocks *b, int o, bool share) {
    int input = operation_signature_of(l->kind)->shares[o];
    return share && input >= 0 && l->in[input].data != NULL ? &b->in[input] : NULL;
}

static void place_operands(launch *l, blocks *b, cuda_placement placement) {
    for (int i = 0; i < OPERATION_INPUTS; i++)
        if (l->in[i].data != NULL) {
            b->in[i] = block_of(&l->in[i], true, placement.shift);
            l->in[i].data = b->in[i].data;
        }
    for (int o = 0; o < OPERATION_OUTPUTS; o++) {
        if (l->out[o].data == NULL)
            continue;
        const block *shared = shared_block(l, b, o, placement.share);
        if (shared == NULL)
            b->out[o] = block_of(&l->out[o], (l->accumulate >> o & 1) != 0, placement.shift + placement.apart);
        l->out[o].data = shared != NULL ? shared->data : b->out[o].data;
    }
}

static block copied(const void *from, size_t bytes) {
    block b = block_make(bytes, 0);
    must(cudaMemcpy(b.data, from, bytes, cudaMemcpyHostToDevice));
    return b;
}

static void place_attributes(attributes *a, blocks *b) {
    if (a->segments != NULL) {
        b->segments = copied(a->segments, (size_t)a->segment_count * sizeof *a->segments);
        a->segments = (const segment *)b->segments.data;
    }
    if (a->columns != NULL) {
        b->columns = copied(a->columns, (size_t)a->column_count * sizeof *a->columns);
        a->columns = (const granule_columns *)b->columns.data;
    }
}

static void free_blocks(blocks *b) {
    block *all = (block *)b;
    for (size_t i = 0; i < sizeof *b / sizeof *all; i++)
        if (all[i].base != NULL)
            block_free(&all[i]);
}

launch cuda_launch_count(const launch *l, cuda_placement placement, simcuda_counters *counters) {
    const cuda_kernel *kernel = cuda_kernels[l->kind];
    launch device = *l;
    blocks b = {0};
    cudaStream_t stream;
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    size_t bytes = kernel->workspace != NULL ? kernel->workspace(l) : 0;
    place_operands(&device, &b, placement);
    place_attributes(&device.attributes, &b);
    if (bytes > 0) {
        b.workspace = block_make(bytes, 0);
        device.workspace = b.workspace.data;
    }
    simcuda_counters_start();
    kernel->queue(&device, stream);
    must(cudaGetLastError());
    must(cudaStreamSynchronize(stream));
    *counters = simcuda_counters_stop();
    launch result = cuda_launch_copy(l); /* only now: a report that a test catches leaves nothing behind */
    for (int o = 0; o < OPERATION_OUTPUTS; o++)
        if (l->out[o].data != NULL)
            must(cudaMemcpy(result.out[o].data, device.out[o].data, cuda_operand_bytes(&l->out[o]),
                            cudaMemcpyDeviceToHost));
    must(cudaStreamDestroy(stream));
    free_blocks(&b);
    return result;
}

launch cuda_launch_run(const launch *l, cuda_placement placement) {
    simcuda_counters counters;
    return cuda_launch_count(l, placement, &counters);
}

void cuda_launch_order(uint64_t seed) {
    simcuda_seed(seed);
}
