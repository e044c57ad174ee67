/* What a device offers to the executor of a step program. One table of functions per device (cpu, cuda); everything
 * above this line is the same for both.
 *
 * Work is queued on numbered streams and runs asynchronously in the order of its stream; the host never touches device
 * memory: it goes through copy_in and copy_out of the device's host memory. Nothing is allocated after start-up: the
 * caller asks for each operation's workspace beforehand and passes it in the launch, and says how many events it uses.
 * A device without asynchrony (the CPU) executes at once, and its events are no-ops.
 *
 * What goes wrong while work is queued or executed shows at the next synchronize: the first failure is kept, what is
 * queued behind it does nothing. */
#ifndef FSDP_ENGINE_DEVICE_DEVICE_H
#define FSDP_ENGINE_DEVICE_DEVICE_H

#include "engine/device/operation.h"
#include "engine/error.h"

typedef struct device device;
typedef struct pool pool; /* engine/device/cpu/pool.h */

/* The streams of a step. Collectives have their own, which go before others where a device knows priorities. */
typedef enum stream { STREAM_COMPUTE, STREAM_GATHER, STREAM_REDUCE, STREAM_COPY, STREAM_COUNT } stream;

/* Memory of the device. `handle` lets another process on the node map it (CPU: a file descriptor; -1: not shared). */
typedef struct device_memory {
    void *base;
    size_t bytes;
    int handle;
} device_memory;

typedef struct device_settings {
    int threads;      /* CPU: threads of this rank, >= 1 */
    const int *cores; /* CPU: one core number per thread to bind to; NULL: leave where the system puts them */
    int number;       /* CUDA: which GPU of those that the process sees, modulo how many there are */
    bool planning;    /* nothing will run, without a GPU: only describe, workspace, fuses and close may be called */
} device_settings;

/* Bytes of memory. Zeros: the device works in the machine's. */
typedef struct device_capacity {
    int64_t total, available;
} device_capacity;

/* The most floating-point operations a second in products of matrices, and how that follows from the device. */
typedef struct device_peak {
    double flops;   /* NAN: not known */
    char basis[96]; /* "132 multiprocessors x 1.98 GHz x 4096" */
} device_peak;

typedef struct device_functions {
    const char *name; /* "cpu", "cuda" */
    bool queues;      /* launch, record and wait return before the work is done; else it is done when they return */

    bool (*open)(const device_settings *settings, device **opened, error *e);
    void (*close)(device *d);

    /* One line for people: processor or GPU, instruction set, threads. Owned by the device. */
    const char *(*describe)(const device *d);

    /* The same text for two ranks of a node that work on one processor of their own sort, which they should not; NULL:
     * ranks may share it. Owned by the device. */
    const char *(*identity)(const device *d);

    /* Where it sits on the PCI bus, as the system writes it ("0000:1b:00.0"), owned by the device. NULL: of a device
     * that is no card. */
    const char *(*bus_address)(const device *d);

    /* With operands of this type; tf32: which may be rounded to TF32. NULL: not known. */
    device_peak (*peak)(const device *d, dtype type, bool tf32);

    /* INT64_MAX where it is only planned for. */
    device_capacity (*capacity)(const device *d);

    /* Threads for work on memory that the host reaches, as the host's collectives do. NULL: it has none. */
    pool *(*host_threads)(const device *d);

    /* The arena. Its contents are undefined. */
    bool (*allocate)(device *d, size_t bytes, device_memory *memory, error *e);
    void (*release)(device *d, device_memory *memory);

    /* Puts memory that has been worked in into huge pages, contents kept: faster to work in and to map, but making them
     * takes about as long as writing all of the memory. NULL: its pages are what they are. */
    void (*enlarge_pages)(device *d, const device_memory *memory);

    /* Zeroed host memory for copy_in and copy_out, and for large reads (CUDA: pinned). */
    bool (*allocate_host)(device *d, size_t bytes, void **memory, error *e);
    void (*release_host)(device *d, void *memory);

    /* Bytes of workspace that the operation needs with these shapes (of operands' data pointers only whether they are
     * NULL). */
    size_t (*workspace)(const device *d, const launch *l);

    /* Whether it executes a matmul that takes over others' work (engine/fuse.h) with these shapes (of operands'
     * data pointers only whether they are NULL). NULL: it never does. Not on the CPU: the gelu of each block of a
     * product while that is in a cache took 1.01 times as long as both apart, as it drives out what is multiplied next,
     * and what column sums could save is a 500th of a step. */
    bool (*fuses)(device *d, const launch *l);

    /* Makes what the launch's attributes point to (segments, columns) readable for kernels: it may put pointers to
     * copies in their place, which the device owns until it is closed. Once per launch, before the first; start-up
     * only. */
    bool (*prepare)(device *d, launch *l, error *e);

    /* Queues one operation; not for collectives. copy_in and copy_out get their host address in `workspace`. */
    void (*launch)(device *d, int stream, const launch *l);

    /* Start-up, saving and tests only: copy between host and device memory and return when it is done. */
    void (*write)(device *d, void *destination, const void *host, size_t bytes);
    void (*read)(device *d, void *host, const void *source, size_t bytes);

    /* Makes events 0 .. events-1 and stamps 0 .. stamps-1; those that are there stay. Asked before the work that uses
     * them; programs that follow each other share their numbers. */
    bool (*reserve)(device *d, int32_t events, int32_t stamps, error *e);

    /* What is queued on a stream behind wait starts when what was queued before the latest record of the event is done.
     * engine/run numbers events by the operation's place in its program. */
    void (*record)(device *d, int stream, int32_t event);
    void (*wait)(device *d, int stream, int32_t event);

    /* What is queued on all streams between begin_graph and end_graph is kept instead of run, as one piece of work that
     * replay queues again and again, on the compute stream: the same launches at the same addresses. Nothing waits on
     * the host in between, and events recorded there belong to the graph. *graph: its number, for replay; it lives as
     * long as the device. NULL where work is not queued. */
    bool (*begin_graph)(device *d, error *e);
    bool (*end_graph)(device *d, int32_t *graph, error *e);
    void (*replay)(device *d, int32_t graph);

    /* Whether what was queued before the latest record of the event is done. Only of a device that queues. */
    bool (*recorded)(device *d, int32_t event);

    /* Stamps the moment at which what was queued on the stream before is done. After synchronize: seconds from one
     * stamp to another. Only of a device that queues. */
    void (*stamp)(device *d, int stream, int32_t stamp);
    double (*elapsed)(device *d, int32_t from, int32_t to);

    /* Names what the host queues until the range ends, for profilers that watch the device; ranges nest. NULL: there
     * are none. */
    void (*begin_range)(device *d, const char *name);
    void (*end_range)(device *d);

    /* Returns when all queued work is done; false: something has gone wrong since the device was opened. */
    bool (*synchronize)(device *d, error *e);
} device_functions;

struct device {
    const device_functions *functions;
    const struct communication *communication; /* of a device that queues (engine/device/communication.h); NULL: ranks
                                                  share a processor, so collectives go through the host's memory */
};

extern const device_functions device_cpu;

#endif
