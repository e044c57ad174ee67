#include "engine/run.h"

#include "comm/patience.h"
#include "engine/checked.h"
#include "engine/order.h"
#include "engine/ranges.h"

#include <math.h>
#include <stdlib.h>

struct run {
    const program *p;
    device *d;
    device_memory arena;
    int32_t *order;      /* [operations]: what is executed first, second, ...; NULL: as listed */
    launch *launches;    /* [operations]; unused for collectives */
    int32_t *collective; /* [operations]: number among the collectives; -1: none */
    bool *awaited;       /* [operations]: another stream waits for it, so an event is recorded behind it */
    char **names;        /* of the collectives, for messages */
    int32_t name_count;
    collectives *comm;
    ranges *ranges;
    void *host[HOST_BUFFER_COUNT];
    size_t host_bytes[HOST_BUFFER_COUNT];
    bool replays;     /* steps from the second on are replayed */
    int64_t steps;    /* done so far */
    int32_t captured; /* the step as a graph of the device; NO_GRAPH: not yet */
};

enum { NO_GRAPH = -1 };

/* ---- preparation ---- */

static char *collective_name(const program *p, const operation *o) {
    const char *what = o->unit == NO_UNIT ? "contributions" : p->unit_names[o->unit];
    const char *verb = operation_signature_of(o->kind)->name;
    return memory_format("%s of %s, %s of pass %d", verb, what, phase_name(o->phase), o->pass);
}

/* The program's collectives in launch order; names may be NULL. Freed by the caller. */
static collective *list_collectives(const program *p, const mesh *m, char **names, int32_t *count) {
    collective *list = memory_allocate((size_t)p->operation_count, sizeof *list);
    *count = 0;
    for (int32_t i = 0; i < p->operation_count; i++) {
        const operation *o = &p->operations[i];
        if (!operation_is_collective(o->kind))
            continue;
        const tensor *in = &p->tensors[o->in[0]], *out = &p->tensors[o->out[0]];
        const tensor *part = o->kind == OPERATION_REDUCE_SCATTER ? out : in;
        const mesh_group group = mesh_group_of(m, o->attributes.group);
        collective *c = &list[*count];
        *c = (collective){.kind = o->kind,
                          .stream = (int)o->stream,
                          .group_first = group.first,
                          .group_stride = group.stride,
                          .group_size = group.size,
                          .type = in->type,
                          .count = part->bytes / dtype_bytes(part->type),
                          .input = in->address,
                          .output = out->address,
                          .odd = (int)o->attributes.odd,
                          .accumulate = o->accumulate != 0,
                          .event = i,
                          .name = names == NULL ? "" : names[*count]};
        ++*count;
    }
    return list;
}

static const collective_backend *backend_of(const device *d) {
    if (!d->functions->queues)
        return &collectives_host;
    return d->communication != NULL ? &collectives_queued : &collectives_staged;
}

int64_t run_workspace(const program *p, const world *w, const device *d, const run_settings *settings) {
    int32_t count = 0;
    collective *list = list_collectives(p, &settings->mesh, NULL, &count);
    const int64_t bytes = backend_of(d)->workspace(w, list, count, settings->transport);
    free(list);
    return bytes;
}

static void number_collectives(run *r) {
    r->collective = memory_allocate((size_t)r->p->operation_count, sizeof *r->collective);
    r->names = memory_allocate((size_t)r->p->operation_count, sizeof *r->names);
    for (int32_t i = 0; i < r->p->operation_count; i++) {
        const operation *o = &r->p->operations[i];
        r->collective[i] = -1;
        if (!operation_is_collective(o->kind))
            continue;
        r->collective[i] = r->name_count;
        r->names[r->name_count++] = collective_name(r->p, o);
    }
}

static void find_awaited(run *r) {
    r->awaited = memory_allocate((size_t)r->p->operation_count, sizeof *r->awaited);
    for (int32_t i = 0; i < r->p->operation_count; i++)
        for (int s = 0; s < STREAM_COUNT; s++)
            if (r->p->operations[i].wait[s] != NO_OPERATION)
                r->awaited[r->p->operations[i].wait[s]] = true;
}

static const tensor *copied_tensor(const program *p, const operation *o) {
    return &p->tensors[o->kind == OPERATION_COPY_IN ? o->out[0] : o->in[0]];
}

static bool is_copy(operation_kind kind) {
    return kind == OPERATION_COPY_IN || kind == OPERATION_COPY_OUT;
}

static bool make_host_buffers(run *r, error *e) {
    for (int32_t i = 0; i < r->p->operation_count; i++) {
        const operation *o = &r->p->operations[i];
        if (!is_copy(o->kind))
            continue;
        const size_t end = (size_t)(o->attributes.host_offset + copied_tensor(r->p, o)->bytes);
        size_t *bytes = &r->host_bytes[o->attributes.host];
        *bytes = end > *bytes ? end : *bytes;
    }
    for (int b = 0; b < HOST_BUFFER_COUNT; b++)
        if (r->host_bytes[b] > 0 && !r->d->functions->allocate_host(r->d, r->host_bytes[b], &r->host[b], e))
            return false;
    return true;
}

static bool make_launches(run *r, error *e) {
    r->launches = memory_allocate((size_t)r->p->operation_count, sizeof *r->launches);
    for (int32_t i = 0; i < r->p->operation_count; i++) {
        const operation *o = &r->p->operations[i];
        r->launches[i] = program_launch(r->p, o, r->arena.base);
        if (is_copy(o->kind))
            r->launches[i].workspace = (char *)r->host[o->attributes.host] + o->attributes.host_offset;
        if (r->collective[i] < 0 && !r->d->functions->prepare(r->d, &r->launches[i], e))
            return false;
    }
    return true;
}

/* Stamps of a timed step: its beginning, then two per operation. */
static int32_t stamp_before(int32_t operation) {
    return 1 + 2 * operation;
}
static int32_t stamp_behind(int32_t operation) {
    return 2 + 2 * operation;
}
enum { STAMP_BEGINNING = 0 };

/* Events are numbered by operations; one more is recorded behind a whole step. */
static int32_t last_event(const run *r) {
    return r->p->operation_count;
}

static bool prepare_device(run *r, bool timed, error *e) {
    const int32_t count = r->p->operation_count;
    return make_host_buffers(r, e) && make_launches(r, e) &&
           r->d->functions->reserve(r->d, last_event(r) + 1, timed ? stamp_before(count) : 0, e);
}

bool run_create(const program *p, world *w, device *d, const device_memory *arena, const run_settings *settings,
                run **created, error *e) {
    run *r = memory_allocate(1, sizeof *r);
    *r = (run){.p = p, .d = d, .arena = *arena, .captured = NO_GRAPH};
    r->replays = settings->replay && d->functions->begin_graph != NULL && backend_of(d)->finish_replayed != NULL;
    number_collectives(r);
    find_awaited(r);
    r->ranges = ranges_create(p, d);
    if (settings->order_seed != 0)
        r->order = order_pick(p, settings->order_seed);
    prepare_device(r, settings->timed, e);
    if (world_agree(w, e)) {
        int32_t count = 0;
        collective *list = list_collectives(p, &settings->mesh, r->names, &count);
        const collectives_settings how = {.device = d,
                                          .arena = arena,
                                          .workspace = p->arena_bytes,
                                          .transport = settings->transport,
                                          .graph = settings->graph,
                                          .timeout = settings->timeout_seconds};
        backend_of(d)->open(w, &how, list, count, &r->comm, e);
        free(list);
    }
    if (e->code != 0) {
        run_destroy(r);
        return false;
    }
    *created = r;
    return true;
}

void run_destroy(run *r) {
    if (r == NULL)
        return;
    if (r->comm != NULL)
        collectives_close(r->comm);
    for (int b = 0; b < HOST_BUFFER_COUNT; b++)
        if (r->host[b] != NULL)
            r->d->functions->release_host(r->d, r->host[b]);
    for (int32_t i = 0; i < r->name_count; i++)
        free(r->names[i]);
    free(r->names);
    ranges_destroy(r->ranges);
    free(r->order);
    free(r->launches);
    free(r->collective);
    free(r->awaited);
    free(r);
}

/* ---- execution ---- */

/* Makes operation `o` start after operation `other`. */
static bool wait_for(run *r, const operation *o, int32_t other, error *e) {
    if (r->collective[other] >= 0)
        return collectives_complete(r->comm, r->collective[other], (int)o->stream, e);
    r->d->functions->wait(r->d, (int)o->stream, other);
    return true;
}

static bool await_needed(run *r, const operation *o, error *e) {
    for (int s = 0; s < STREAM_COUNT; s++) {
        if (o->wait[s] != NO_OPERATION && !wait_for(r, o, o->wait[s], e))
            return false;
        if (o->release[s] != NO_OPERATION &&
            !collectives_release(r->comm, r->collective[o->release[s]], (int)o->stream, e))
            return false;
    }
    return true;
}

static void queue(run *r, int32_t i) {
    const operation *o = &r->p->operations[i];
    if (r->collective[i] >= 0) {
        collectives_issue(r->comm, r->collective[i]);
        return;
    }
    r->d->functions->launch(r->d, (int)o->stream, &r->launches[i]);
    if (r->awaited[i])
        r->d->functions->record(r->d, (int)o->stream, i);
}

static void start(run *r, int32_t i) {
    ranges_begin(r->ranges, i);
    queue(r, i);
    ranges_end(r->ranges);
}

static bool execute(run *r, int32_t i, error *e) {
    if (!await_needed(r, &r->p->operations[i], e))
        return false;
    start(r, i);
    collectives_poll(r->comm);
    return true;
}

static bool finish(run *r, error *e) {
    return collectives_finish(r->comm, e) && r->d->functions->synchronize(r->d, e);
}

/* What the list's place `i` executes. */
static int32_t listed(const run *r, int32_t i) {
    return r->order == NULL ? i : r->order[i];
}

static bool execute_all(run *r, error *e) {
    for (int32_t i = 0; i < r->p->operation_count; i++)
        if (!execute(r, listed(r, i), e))
            return false;
    ranges_close(r->ranges);
    return true;
}

/* ---- as a graph ---- */

static bool capture(run *r, error *e) {
    return r->d->functions->begin_graph(r->d, e) && execute_all(r, e) &&
           r->d->functions->end_graph(r->d, &r->captured, e);
}

static bool replay(run *r, error *e) {
    r->d->functions->replay(r->d, r->captured);
    r->d->functions->record(r->d, STREAM_COMPUTE, last_event(r));
    return r->comm->backend->finish_replayed(r->comm, last_event(r), e) && r->d->functions->synchronize(r->d, e);
}

/* The first step runs plainly: libraries choose their algorithms and connect to each other when they are first called,
 * which cannot be captured. */
bool run_step(run *r, error *e) {
    if (!r->replays || r->steps++ == 0)
        return execute_all(r, e) && finish(r, e);
    return (r->captured != NO_GRAPH || capture(r, e)) && replay(r, e);
}

/* ---- timed, by the host's clock: of a device that works at once ---- */

static double moving(run *r, stream s) {
    return r->comm->backend->spent(r->comm, (int)s, false).moving;
}

static bool execute_clocked(run *r, int32_t i, operation_times *times, error *e) {
    times->reached = patience_clock();
    if (!await_needed(r, &r->p->operations[i], e))
        return false;
    const double gathered = moving(r, STREAM_GATHER), reduced = moving(r, STREAM_REDUCE);
    times->started = patience_clock();
    start(r, i);
    times->ended = patience_clock();
    collectives_poll(r->comm);
    times->moving_gather = moving(r, STREAM_GATHER) - gathered;
    times->moving_reduce = moving(r, STREAM_REDUCE) - reduced;
    return true;
}

static bool run_clocked(run *r, step_times *times, error *e) {
    for (int32_t i = 0; i < r->p->operation_count; i++)
        if (!execute_clocked(r, listed(r, i), &times->operations[listed(r, i)], e))
            return false;
    times->drained = patience_clock();
    if (!finish(r, e))
        return false;
    times->ended = patience_clock();
    for (int32_t i = 0; i < r->p->operation_count; i++)
        if (r->collective[i] >= 0)
            times->operations[i].completed = r->comm->backend->done_at(r->comm, r->collective[i]);
    return true;
}

/* ---- timed, by the device's stamps: of a device that queues ---- */

static bool execute_stamped(run *r, int32_t i, error *e) {
    const operation *o = &r->p->operations[i];
    if (!await_needed(r, o, e))
        return false;
    r->d->functions->stamp(r->d, (int)o->stream, stamp_before(i));
    start(r, i);
    r->d->functions->stamp(r->d, (int)o->stream, stamp_behind(i));
    collectives_poll(r->comm);
    return true;
}

/* Streams run side by side: only what the compute stream waits for keeps the rank waiting, and behind the last
 * operation the collectives that still run. */
static void read_stamps(run *r, step_times *times) {
    double computed = times->started, collected = times->started, worked = times->started;
    for (int32_t i = 0; i < r->p->operation_count; i++) {
        const stream on = r->p->operations[i].stream;
        operation_times *at = &times->operations[i];
        *at = (operation_times){
            .started = times->started + r->d->functions->elapsed(r->d, STAMP_BEGINNING, stamp_before(i)),
            .ended = times->started + r->d->functions->elapsed(r->d, STAMP_BEGINNING, stamp_behind(i))};
        at->reached = on == STREAM_COMPUTE ? computed : at->started;
        at->completed = at->ended;
        computed = on == STREAM_COMPUTE ? at->ended : computed;
        double *last = r->collective[i] >= 0 ? &collected : &worked;
        *last = fmax(*last, at->ended);
    }
    times->drained = times->ended - fmax(0, collected - worked);
}

static bool run_stamped(run *r, step_times *times, error *e) {
    r->d->functions->stamp(r->d, STREAM_COMPUTE, STAMP_BEGINNING);
    for (int32_t i = 0; i < r->p->operation_count; i++)
        if (!execute_stamped(r, listed(r, i), e))
            return false;
    ranges_close(r->ranges);
    if (!finish(r, e))
        return false;
    times->ended = patience_clock();
    read_stamps(r, times);
    return true;
}

bool run_step_timed(run *r, step_times *times, error *e) {
    times->started = patience_clock();
    return r->d->functions->queues ? run_stamped(r, times, e) : run_clocked(r, times, e);
}

/* ---- the host's side ---- */

void *run_host(run *r, host_buffer which, size_t *bytes) {
    *bytes = r->host_bytes[which];
    return r->host[which];
}

static char *address(const run *r, tensor_id t, int64_t offset, int64_t bytes) {
    const tensor *x = &r->p->tensors[t];
    check(offset >= 0 && bytes >= 0 && offset + bytes <= x->bytes, "bytes outside tensor %s", x->name);
    return (char *)r->arena.base + x->address + offset;
}

void run_write(run *r, tensor_id t, int64_t offset, const void *host, int64_t bytes) {
    r->d->functions->write(r->d, address(r, t, offset, bytes), host, (size_t)bytes);
}

void run_read(run *r, tensor_id t, int64_t offset, void *host, int64_t bytes) {
    r->d->functions->read(r->d, host, address(r, t, offset, bytes), (size_t)bytes);
}

void run_enlarge_pages(run *r) {
    if (r->d->functions->enlarge_pages != NULL)
        r->d->functions->enlarge_pages(r->d, &r->arena);
}

bool run_settle(run *r, error *e) {
    return r->d->functions->synchronize(r->d, e);
}

bool run_time_out(run *r, error *e) {
    return collectives_time_out(r->comm, e);
}

void run_fail(run *r, const error *e) {
    collectives_fail(r->comm, e);
}

collectives_times run_communication(run *r, stream s) {
    return r->comm->backend->spent(r->comm, (int)s, true);
}
