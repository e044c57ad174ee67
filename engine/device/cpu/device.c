/* The CPU as a device: memory that the other ranks of the node can map, and one kernel per operation kind. Everything
 * executes at once, so streams and events have nothing to do. */
#include "engine/checked.h"
#include "engine/device/cpu/processor.h"
#include "engine/device/cpu/shared_memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct cpu_device {
    device base;
    pool *pool;
    const cpu_kernel_table *table;
    char description[160];
} cpu_device;

static cpu_device *cpu_of(device *d) {
    return (cpu_device *)d;
}

static bool cpu_open(const device_settings *settings, device **opened, error *e) {
    pool *p = NULL;
    if (!pool_create(settings->threads, settings->cores, &p, e))
        return false;
    int tables = 0;
    cpu_device *d = memory_allocate(1, sizeof *d);
    *d = (cpu_device){.base.functions = &device_cpu, .pool = p, .table = &processor_kernels(&tables)[0]};
    char processor[100];
    processor_name(processor, sizeof processor);
    snprintf(d->description, sizeof d->description, "%s, %s, %d %s", processor, d->table->isa, settings->threads,
             settings->threads == 1 ? "thread" : "threads");
    *opened = &d->base;
    return true;
}

static void cpu_close(device *d) {
    pool_destroy(cpu_of(d)->pool);
    free(d);
}

static const char *cpu_describe(const device *d) {
    return ((const cpu_device *)d)->description;
}

static const char *cpu_identity(const device *d) {
    (void)d;
    return NULL;
}

static device_capacity cpu_capacity(const device *d) {
    (void)d;
    return (device_capacity){0};
}

static pool *cpu_host_threads(const device *d) {
    return ((const cpu_device *)d)->pool;
}

static bool cpu_allocate(device *d, size_t bytes, device_memory *memory, error *e) {
    (void)d;
    return shared_memory_create(bytes, memory, e);
}

static void cpu_release(device *d, device_memory *memory) {
    (void)d;
    shared_memory_release(memory);
}

static void cpu_enlarge_pages(device *d, const device_memory *memory) {
    shared_memory_enlarge_pages(cpu_of(d)->pool, memory->base, memory->bytes);
}

static bool cpu_allocate_host(device *d, size_t bytes, void **memory, error *e) {
    (void)d;
    *memory = calloc(bytes > 0 ? bytes : 1, 1);
    return *memory != NULL ||
           error_set_own(e, EXIT_LAUNCH, "this machine has no %.1f MB of memory to give", (double)bytes / 1e6);
}

static void cpu_release_host(device *d, void *memory) {
    (void)d;
    free(memory);
}

static size_t cpu_workspace(const device *d, const launch *l) {
    const cpu_device *cpu = (const cpu_device *)d;
    const cpu_kernel *kernel = cpu_kernel_for(cpu->table, l);
    return kernel->workspace == NULL ? 0 : kernel->workspace(l, pool_threads(cpu->pool));
}

static bool cpu_prepare(device *d, launch *l, error *e) {
    (void)d, (void)l, (void)e;
    return true;
}

static size_t operand_bytes(const operand *o) {
    return (size_t)must_multiply(operand_count(o), dtype_bytes(o->type));
}

static void cpu_launch(device *d, int stream, const launch *l) {
    (void)stream;
    const cpu_kernel *kernel = cpu_kernel_for(cpu_of(d)->table, l);
    if (l->kind == OPERATION_COPY_IN) {
        memcpy(l->out[0].data, l->workspace, operand_bytes(&l->out[0]));
    } else if (l->kind == OPERATION_COPY_OUT) {
        memcpy(l->workspace, l->in[0].data, operand_bytes(&l->in[0]));
    } else {
        check(kernel->run != NULL, "the CPU has no kernel for operation kind %d", l->kind);
        kernel->run(cpu_of(d)->pool, l);
    }
}

static void cpu_write(device *d, void *destination, const void *host, size_t bytes) {
    (void)d;
    memcpy(destination, host, bytes);
}

static void cpu_read(device *d, void *host, const void *source, size_t bytes) {
    (void)d;
    memcpy(host, source, bytes);
}

static bool cpu_reserve(device *d, int32_t events, int32_t stamps, error *e) {
    (void)d, (void)events, (void)stamps, (void)e;
    return true;
}

static void cpu_record(device *d, int stream, int32_t event) {
    (void)d, (void)stream, (void)event;
}

static void cpu_wait(device *d, int stream, int32_t event) {
    (void)d, (void)stream, (void)event;
}

static bool cpu_synchronize(device *d, error *e) {
    (void)d, (void)e;
    return true;
}

const device_functions device_cpu = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .describe = cpu_describe,
    .identity = cpu_identity,
    .capacity = cpu_capacity,
    .host_threads = cpu_host_threads,
    .allocate = cpu_allocate,
    .release = cpu_release,
    .enlarge_pages = cpu_enlarge_pages,
    .allocate_host = cpu_allocate_host,
    .release_host = cpu_release_host,
    .workspace = cpu_workspace,
    .prepare = cpu_prepare,
    .launch = cpu_launch,
    .write = cpu_write,
    .read = cpu_read,
    .reserve = cpu_reserve,
    .record = cpu_record,
    .wait = cpu_wait,
    .synchronize = cpu_synchronize,
};
