/* What a device offers to the executor of a step program. One table of functions per device (cpu, cuda); everything
 * above this line is the same for both.
 *
 * Work is queued on numbered streams and runs asynchronously in the order of its stream; the host never touches device
 * memory: it goes through copy_in and copy_out of pinned host memory. Nothing is allocated after start-up: the caller
 * asks for each operation's workspace beforehand and passes it in the launch. A device without asynchrony (the CPU)
 * executes at once, and its events are no-ops. */
#ifndef FSDP_ENGINE_DEVICE_DEVICE_H
#define FSDP_ENGINE_DEVICE_DEVICE_H

#include "engine/device/operation.h"
#include "engine/error.h"

typedef struct device device;

/* Memory of the device. `handle` lets another process on the node map it (CPU: a file descriptor; -1: not shared). */
typedef struct device_memory {
    void *base;
    size_t bytes;
    int handle;
} device_memory;

typedef struct device_settings {
    int threads;      /* CPU: threads of this rank, >= 1 */
    const int *cores; /* CPU: one core number per thread to bind to; NULL: leave where the system puts them */
    int local_rank;   /* CUDA: which GPU */
} device_settings;

typedef struct device_functions {
    const char *name; /* "cpu", "cuda" */

    bool (*open)(const device_settings *settings, device **opened, error *e);
    void (*close)(device *d);

    /* One line for people: processor or GPU, instruction set, threads. Owned by the device. */
    const char *(*describe)(const device *d);

    /* The arena. Its contents are undefined. */
    bool (*allocate)(device *d, size_t bytes, device_memory *memory, error *e);
    void (*release)(device *d, device_memory *memory);

    /* Bytes of workspace that the operation needs with these shapes (operand data pointers are not read). */
    size_t (*workspace)(const device *d, const launch *l);

    /* Queues one operation; not for collectives. copy_in and copy_out get their host address in `workspace`. */
    void (*launch)(device *d, int stream, const launch *l);

    /* Start-up, saving and tests only: copy between host and device memory and return when it is done. */
    void (*write)(device *d, void *destination, const void *host, size_t bytes);
    void (*read)(device *d, void *host, const void *source, size_t bytes);

    /* What is queued on a stream behind wait starts when what was queued before the latest record of the event is done.
     * event: the caller's number for it, from 0; engine/run uses the operation's place in its program. */
    void (*record)(device *d, int stream, int event);
    void (*wait)(device *d, int stream, int event);
    void (*synchronize)(device *d); /* returns when all queued work is done */
} device_functions;

struct device {
    const device_functions *functions;
};

extern const device_functions device_cpu;

#endif
