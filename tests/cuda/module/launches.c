/* Launches (cuda/launches.h) on the device of libfsdp_cuda.so beside the program. All operands of a launch lie in one
 * piece of the device's memory, which is filled with 0xff (NaN) before: whatever the launch changes outside of its
 * outputs is found. */
#include "cuda/launches.h"
#include "engine/checked.h"
#include "engine/device/module.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 256, GUARD = 256, ARENA = 256 << 20 };

typedef struct gpu {
    device *device;
    device_memory arena;
} gpu;

/* Opened by the first launch; the process ends with it. */
static const gpu *opened(void) {
    static gpu g;
    const device_module *module = NULL;
    const device_settings settings = {.threads = 1};
    error e = {0};
    if (g.device != NULL)
        return &g;
    check(device_module_load(&module, &e) && module->device->open(&settings, &g.device, &e) &&
              g.device->functions->allocate(g.device, ARENA, &g.arena, &e),
          "%s", e.message);
    print_message("%s\n", g.device->functions->describe(g.device));
    return &g;
}

/* Bytes from the arena's start at which operands lie. */
typedef struct layout {
    int64_t in[OPERATION_INPUTS], out[OPERATION_OUTPUTS], end;
} layout;

static int64_t place(layout *at, const operand *o, int64_t shift) {
    const int64_t begin = round_up(at->end + GUARD, ALIGNMENT) + shift * dtype_bytes(o->type);
    at->end = begin + (int64_t)cuda_operand_bytes(o) + GUARD;
    return begin;
}

static layout layout_of(const launch *l, cuda_placement placement) {
    layout at = {0};
    for (int i = 0; i < OPERATION_INPUTS; i++)
        if (l->in[i].data != NULL)
            at.in[i] = place(&at, &l->in[i], placement.shift);
    for (int o = 0; o < OPERATION_OUTPUTS; o++) {
        const int input = operation_signature_of(l->kind)->shares[o];
        if (l->out[o].data == NULL)
            continue;
        if (placement.share && input >= 0 && l->in[input].data != NULL)
            at.out[o] = at.in[input];
        else
            at.out[o] = place(&at, &l->out[o], placement.shift + placement.apart);
    }
    return at;
}

/* What the operands' piece of memory holds before the launch; freed by the caller. */
static char *image_of(const launch *l, const layout *at) {
    char *image = memory_allocate((size_t)at->end, 1);
    memset(image, 0xff, (size_t)at->end);
    for (int o = 0; o < OPERATION_OUTPUTS; o++)
        if (l->out[o].data != NULL && (l->accumulate >> o & 1) != 0)
            memcpy(image + at->out[o], l->out[o].data, cuda_operand_bytes(&l->out[o]));
    for (int i = 0; i < OPERATION_INPUTS; i++)
        if (l->in[i].data != NULL)
            memcpy(image + at->in[i], l->in[i].data, cuda_operand_bytes(&l->in[i]));
    return image;
}

/* The launch with its operands in the arena, and its workspace behind them. */
static launch placed(const gpu *g, const launch *l, const layout *at) {
    launch device = *l;
    char *base = g->arena.base;
    for (int i = 0; i < OPERATION_INPUTS; i++)
        if (l->in[i].data != NULL)
            device.in[i].data = base + at->in[i];
    for (int o = 0; o < OPERATION_OUTPUTS; o++)
        if (l->out[o].data != NULL)
            device.out[o].data = base + at->out[o];
    const int64_t behind = round_up(at->end, ALIGNMENT);
    const size_t bytes = g->device->functions->workspace(g->device, &device);
    check(behind + (int64_t)bytes <= ARENA, "a launch of %lld bytes", (long long)behind + (long long)bytes);
    device.workspace = bytes > 0 ? base + behind : NULL;
    error e = {0};
    check(g->device->functions->prepare(g->device, &device, &e), "%s", e.message);
    return device;
}

bool cuda_launch_fuses(const launch *l) {
    device *d = opened()->device;
    return d->functions->fuses(d, l);
}

launch cuda_launch_run(const launch *l, cuda_placement placement) {
    const gpu *g = opened();
    const layout at = layout_of(l, placement);
    char *before = image_of(l, &at), *after = memory_allocate((size_t)at.end, 1);
    const launch device = placed(g, l, &at);
    launch result = cuda_launch_copy(l);
    error e = {0};
    g->device->functions->write(g->device, g->arena.base, before, (size_t)at.end);
    g->device->functions->launch(g->device, STREAM_COMPUTE, &device);
    check(g->device->functions->synchronize(g->device, &e), "%s", e.message);
    g->device->functions->read(g->device, after, g->arena.base, (size_t)at.end);
    for (int o = 0; o < OPERATION_OUTPUTS; o++)
        if (l->out[o].data != NULL) {
            const size_t bytes = cuda_operand_bytes(&l->out[o]);
            memcpy(result.out[o].data, after + at.out[o], bytes);
            memcpy(after + at.out[o], before + at.out[o], bytes);
        }
    if (memcmp(before, after, (size_t)at.end) != 0)
        fail_msg("%s changes bytes outside of its outputs", operation_signature_of(l->kind)->name);
    free(before);
    free(after);
    return result;
}

void cuda_launch_order(uint64_t seed) {
    (void)seed; /* the device's own order */
}
