/* The collectives of ranks that share a processor which queues work, as several ranks on one GPU, which its library
 * refuses: inputs are copied to a mirror of the arena in the host's memory, the host's collectives work there, outputs
 * are copied back. Every step of it waits for the device: a way to try many ranks on one GPU, not to train fast.
 *
 * The mirror has the arena's layout. Only the pages that collectives touch come into being. */
#include "comm/collectives.h"
#include "comm/parts.h"
#include "engine/checked.h"
#include "engine/device/cpu/shared_memory.h"

#include <stdlib.h>

typedef struct staged_collectives {
    collectives base;
    world *world;
    device *device; /* whose arena it is */
    device *host;   /* on whose memory the host's collectives work */
    device_memory arena, mirror;
    collectives *inner;
    collective *list;
    int32_t count;
    bool *issued, *written; /* [count]: in this step; the output is back in the arena */
    error failure;
} staged_collectives;

static staged_collectives *staged_of(collectives *c) {
    return (staged_collectives *)c;
}

static int64_t staged_workspace(const world *w, const collective *list, int32_t count, transport how) {
    return collectives_host.workspace(w, list, count, how);
}

/* ---- copies ---- */

static size_t input_bytes(const collective *o) {
    const int64_t parts = o->kind == OPERATION_REDUCE_SCATTER ? o->group_size : 1;
    return (size_t)must_multiply(must_multiply(parts, o->count), dtype_bytes(o->type));
}

static size_t output_bytes(const collective *o) {
    const int64_t parts = o->kind == OPERATION_ALL_GATHER ? o->group_size : 1;
    const dtype type = o->kind == OPERATION_REDUCE_SCATTER ? DTYPE_F32 : o->type;
    return (size_t)must_multiply(must_multiply(parts, o->count), dtype_bytes(type));
}

static void to_mirror(staged_collectives *c, int64_t at, size_t bytes) {
    c->device->functions->read(c->device, (char *)c->mirror.base + at, (char *)c->arena.base + at, bytes);
}

static void from_mirror(staged_collectives *c, int64_t at, size_t bytes) {
    c->device->functions->write(c->device, (char *)c->arena.base + at, (char *)c->mirror.base + at, bytes);
}

/* ---- the way of a collective ---- */

static void staged_issue(collectives *base, int32_t index) {
    staged_collectives *c = staged_of(base);
    const collective *o = &c->list[index];
    if (c->failure.code != 0 || !c->device->functions->synchronize(c->device, &c->failure))
        return;
    to_mirror(c, o->input, input_bytes(o));
    if (o->accumulate)
        to_mirror(c, o->output, output_bytes(o));
    collectives_issue(c->inner, index);
    c->issued[index] = true;
}

static bool failed(const staged_collectives *c, error *e) {
    if (c->failure.code != 0)
        *e = c->failure;
    return c->failure.code != 0;
}

/* Completing a collective completes those before it on its stream. */
static bool staged_complete(collectives *base, int32_t index, int stream, error *e) {
    staged_collectives *c = staged_of(base);
    if (failed(c, e) || !collectives_complete(c->inner, index, stream, e))
        return false;
    for (int32_t i = 0; i <= index; i++)
        if (c->issued[i] && !c->written[i] && c->list[i].stream == c->list[index].stream) {
            from_mirror(c, c->list[i].output, output_bytes(&c->list[i]));
            c->written[i] = true;
        }
    return true;
}

static bool staged_release(collectives *base, int32_t index, int stream, error *e) {
    staged_collectives *c = staged_of(base);
    return staged_complete(base, index, stream, e) && collectives_release(c->inner, index, stream, e);
}

static bool staged_finish(collectives *base, error *e) {
    staged_collectives *c = staged_of(base);
    for (int32_t i = 0; i < c->count; i++)
        if (!c->written[i] && !staged_complete(base, i, c->list[i].stream, e))
            return false;
    if (!collectives_finish(c->inner, e))
        return false;
    for (int32_t i = 0; i < c->count; i++)
        c->issued[i] = c->written[i] = false;
    return true;
}

static void staged_poll(collectives *base) {
    collectives_poll(staged_of(base)->inner);
}

static collectives_times staged_spent(collectives *base, int stream, bool reset) {
    collectives *inner = staged_of(base)->inner;
    return inner->backend->spent(inner, stream, reset);
}

static bool staged_time_out(collectives *base, error *e) {
    return collectives_time_out(staged_of(base)->inner, e);
}

static void staged_fail(collectives *base, const error *e) {
    collectives_fail(staged_of(base)->inner, e);
}

/* ---- opening ---- */

static void staged_close(collectives *base) {
    staged_collectives *c = staged_of(base);
    if (c->inner != NULL)
        collectives_close(c->inner);
    if (c->mirror.base != NULL)
        shared_memory_release(&c->mirror);
    if (c->host != NULL)
        c->host->functions->close(c->host);
    free(c->issued);
    free(c->written);
    free(c->list);
    free(c);
}

static bool staged_open(world *w, const collectives_settings *settings, const collective *list, int32_t count,
                        collectives **opened, error *e) {
    staged_collectives *c = memory_allocate(1, sizeof *c);
    *c = (staged_collectives){.base.backend = &collectives_staged,
                              .world = w,
                              .device = settings->device,
                              .arena = *settings->arena,
                              .count = count};
    c->list = memory_allocate((size_t)count, sizeof *c->list);
    c->issued = memory_allocate((size_t)count, sizeof *c->issued);
    c->written = memory_allocate((size_t)count, sizeof *c->written);
    for (int32_t i = 0; i < count; i++)
        c->list[i] = list[i];
    const device_settings one_thread = {.threads = 1};
    if (device_cpu.open(&one_thread, &c->host, e))
        shared_memory_create(settings->arena->bytes, &c->mirror, e);
    if (world_agree(w, e)) {
        collectives_settings inner = *settings;
        inner.device = c->host;
        inner.arena = &c->mirror;
        collectives_host.open(w, &inner, list, count, &c->inner, e);
    }
    if (e->code != 0) {
        staged_close(&c->base);
        return false;
    }
    *opened = &c->base;
    return true;
}

const collective_backend collectives_staged = {
    .name = "staged",
    .workspace = staged_workspace,
    .open = staged_open,
    .close = staged_close,
    .issue = staged_issue,
    .complete = staged_complete,
    .release = staged_release,
    .finish = staged_finish,
    .poll = staged_poll,
    .spent = staged_spent,
    .time_out = staged_time_out,
    .fail = staged_fail,
};
