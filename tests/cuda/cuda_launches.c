#include "cuda/cuda_launches.h"

#include "engine/device/reference/reference.h"
#include "engine/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- copies on host memory ---- */

static operand operand_as(const operand *o, dtype type) {
    if (o->data == NULL)
        return *o;
    operand copy = operand_make(type, o->shape[0], o->shape[1]);
    for (int64_t i = 0; i < operand_count(o); i++)
        operand_set(&copy, i, operand_get(o, i));
    return copy;
}

static dtype type_of(char letter, dtype type, dtype activations, dtype gradients) {
    return letter == 'A' ? activations : letter == 'G' ? gradients : type;
}

static launch clone(const launch *l) {
    launch copy = *l;
    for (int i = 0; i < OPERATION_INPUTS; i++)
        copy.in[i] = operand_as(&l->in[i], l->in[i].type);
    for (int o = 0; o < OPERATION_OUTPUTS; o++)
        copy.out[o] = operand_as(&l->out[o], l->out[o].type);
    return copy;
}

launch cuda_launch_typed(const launch *l, dtype activations, dtype gradients) {
    const operation_signature *s = operation_signature_of(l->kind);
    launch copy = *l;
    for (int i = 0; i < OPERATION_INPUTS; i++)
        copy.in[i] = operand_as(&l->in[i], type_of(s->input_types[i], l->in[i].type, activations, gradients));
    for (int o = 0; o < OPERATION_OUTPUTS; o++)
        copy.out[o] = operand_as(&l->out[o], type_of(s->output_types[o], l->out[o].type, activations, gradients));
    return copy;
}

launch cuda_launch_reference(const launch *l) {
    launch copy = *l;
    for (int i = 0; i < OPERATION_INPUTS; i++)
        copy.in[i] = operand_as(&l->in[i], l->in[i].type == DTYPE_I32 ? DTYPE_I32 : DTYPE_F64);
    for (int o = 0; o < OPERATION_OUTPUTS; o++)
        copy.out[o] = operand_as(&l->out[o], DTYPE_F64);
    reference_launch_f64(&copy);
    return copy;
}

/* ---- on the device ---- */

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

static size_t operand_bytes(const operand *o) {
    return (size_t)(operand_count(o) * dtype_bytes(o->type));
}

static block block_of(const operand *o, bool written, int64_t shift) {
    block b = block_make(operand_bytes(o), (size_t)(shift * dtype_bytes(o->type)));
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
            b->out[o] = block_of(&l->out[o], (l->accumulate >> o & 1) != 0, placement.shift);
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

launch cuda_launch_count(const cuda_kernel *kernel, const launch *l, cuda_placement placement,
                         simcuda_counters *counters) {
    launch result = clone(l), device = *l;
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
    for (int o = 0; o < OPERATION_OUTPUTS; o++)
        if (l->out[o].data != NULL)
            must(cudaMemcpy(result.out[o].data, device.out[o].data, operand_bytes(&l->out[o]), cudaMemcpyDeviceToHost));
    must(cudaStreamDestroy(stream));
    free_blocks(&b);
    return result;
}

launch cuda_launch_run(const cuda_kernel *kernel, const launch *l, cuda_placement placement) {
    simcuda_counters counters;
    return cuda_launch_count(kernel, l, placement, &counters);
}

/* ---- comparison ---- */

/* Roundoff of a type, and of its subnormal numbers. */
static double roundoff(dtype type) {
    return type == DTYPE_F64 ? 0x1p-53 : type == DTYPE_BF16 ? 0x1p-8 : type == DTYPE_F16 ? 0x1p-11 : 0x1p-24;
}

static double largest_of(const operand *o) {
    double largest = 0;
    for (int64_t i = 0; i < operand_count(o); i++)
        if (isfinite(operand_get(o, i)))
            largest = fmax(largest, fabs(operand_get(o, i)));
    return largest;
}

void cuda_launch_compare(const launch *got, const launch *want, int o, accuracy near, const char *where) {
    const operand *a = &got->out[o], *b = &want->out[o];
    bool narrow = a->type == DTYPE_BF16 || a->type == DTYPE_F16;
    double unit = roundoff(narrow ? DTYPE_F32 : a->type), largest = largest_of(b);
    for (int64_t i = 0; i < operand_count(b); i++) {
        double x = operand_get(a, i), y = operand_get(b, i);
        double allowed = unit * (near.relative * fabs(y) + near.spread * largest + near.absolute);
        if (narrow) /* rounded once, from a value that is off by the above */
            allowed += roundoff(a->type) * (fabs(y) + allowed) + (a->type == DTYPE_F16 ? 0x1p-25 : 0);
        bool same = isfinite(y) ? fabs(x - y) <= allowed : (isnan(x) && isnan(y)) || x == y;
        if (!same)
            fail_msg("%s, %s[%lld]: %.9g instead of %.9g: %.3g apart, allowed %.3g", where,
                     operation_signature_of(got->kind)->outputs[o], (long long)i, x, y, fabs(x - y), allowed);
    }
}
