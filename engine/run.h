/* Executes a step program on a device: the only executor there is. It walks the list in order, makes each operation's
 * waits, and launches it; a collective is issued at its place and completed at its first waiter. Launches are prepared
 * once; a step allocates nothing. */
#ifndef FSDP_ENGINE_RUN_H
#define FSDP_ENGINE_RUN_H

#include "comm/collectives.h"
#include "comm/mesh.h"
#include "engine/program.h"

typedef struct run run;

typedef struct run_settings {
    mesh mesh;
    transport transport;
    ring_graph graph;       /* of collectives_settings; its path outlives run_create */
    double timeout_seconds; /* for one collective */
    uint64_t order_seed;    /* 0: in the order of the list; else one that streams and waits allow (engine/order.h) */
    bool timed;             /* run_step_timed will be called */
    bool replay;            /* a device that can repeat a whole step as one piece of work does so from the second on */
} run_settings;

/* Bytes of workspace inside the arena, behind p->arena_bytes, that the program's collectives need. */
int64_t run_workspace(const program *p, const world *w, const device *d, const run_settings *settings);

/* Prepares a placed program with derived waits. The program, the device and the arena belong to the caller and outlive
 * the run; several runs may share an arena (training and validation). Collective over the world. */
bool run_create(const program *p, world *w, device *d, const device_memory *arena, const run_settings *settings,
                run **created, error *e);
void run_destroy(run *r);

/* Host memory that the program copies in from, or out to; *bytes is its size, 0 when the program has none of it. Filled
 * before run_step, read after it. */
void *run_host(run *r, host_buffer which, size_t *bytes);

/* One step. False: a collective failed (a peer is gone, late, or has failed itself), or the device did. */
bool run_step(run *r, error *e);

/* When an operation ran, in seconds of the monotonic clock (comm/patience.h). */
typedef struct operation_times {
    double reached; /* its turn came; until `started` the rank waited for what it needs */
    double started; /* a collective: was issued */
    double ended;
    /* Seconds spent on messages of gathers and of reductions, by issuing (from `started`) or between operations (from
     * `ended`). */
    double moving_gather, moving_reduce;
    double completed; /* a collective: this rank's output was ready */
} operation_times;

typedef struct step_times {
    double started;
    double drained; /* all operations were started; until `ended` the rank waited for collectives under way */
    double ended;
    operation_times *operations; /* [operations of the program] */
} step_times;

/* run_step, measured. The times belong to the caller. Of a device that queues they come from its stamps, else from the
 * host's clock. */
bool run_step_timed(run *r, step_times *times, error *e);

/* For start-up and saving: host copies of a whole tensor or a run of its bytes. What goes wrong shows in run_settle. */
void run_write(run *r, tensor_id t, int64_t offset, const void *host, int64_t bytes);
void run_read(run *r, tensor_id t, int64_t offset, void *host, int64_t bytes);

/* Puts the arena into huge pages where the device has any: between two steps, behind the first, which works without
 * and would else be waited for longer. */
void run_enlarge_pages(run *r);

/* Whether the device has done all that it was asked to. */
bool run_settle(run *r, error *e);

/* This rank has waited for the others at the end of a step longer than a collective may take: false, and all ranks are
 * told who is missing, as when a collective hangs. */
bool run_time_out(run *r, error *e);

/* Fails on behalf of this rank: the others' waits return. */
void run_fail(run *r, const error *e);

/* Seconds of run_step waited for other ranks and spent moving bytes, for the collectives of a stream, since the last
 * call for it. */
collectives_times run_communication(run *r, stream s);

#endif
