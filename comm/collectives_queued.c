/* The collectives of devices that queue work, by what the device offers for talking to others (engine/device/
 * communication.h): each is queued on its stream, and an event behind it is what other streams wait for. Only the end
 * of a step waits on the host, and watches over time-outs and failures. Before and behind each collective the device
 * counts, in memory that the host sees, so that a hang is named in a replayed step as well.
 *
 * There is a communicator for each stream and sort of group, so that what is gathered and what is reduced can overlap.
 * All ranks queue all collectives in the order of the list, which is the same everywhere, so that no two ranks have
 * their streams wait for each other crosswise.
 *
 * Sums in the library's order are its own reduce_scatter and all_reduce. Sums in the order of the ranks
 * (collective.odd) exchange parts and add them up here, in fp32. */
#include "comm/alarm.h"
#include "comm/parts.h"
#include "comm/patience.h"
#include "engine/checked.h"
#include "engine/device/cpu/shared_memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { WORKSPACE_ALIGNMENT = 256 };

/* How often a waiting rank looks whether the others are alive. */
static const double LOOK_SECONDS = 0.25;

/* What a communicator is for: the groups of one sort, on one stream. */
typedef struct group_link {
    int stream, stride, size;
    communicator *communicator;
} group_link;

typedef struct queued_collectives {
    collectives base;
    world *world;
    device *device;
    const communication *by;
    char *arena;
    collective *list;
    int32_t count;
    int32_t *link_of; /* [count] */
    group_link *links;
    int32_t link_count;
    ring_graph graph;
    int64_t workspace[COLLECTIVE_STREAMS]; /* bytes from the arena's start; a stream's collectives use it in turn */
    exchange_part *parts;                  /* [world size]: of the exchange that is being queued */
    int64_t *reached, *passed;             /* [count], of the device: in how many steps the device's stream has come to
                                              a collective, and has done it */
    int32_t begun, done;                   /* in this step: collectives before these numbers are */
    bool waits, meets;                     /* for a collective; for the others at the end of the step, which is done */
    device_memory marks;                   /* what the window looks out of: nothing but its marks is used */
    bool *near;                            /* [world size] */
    window *window;
    messages *messages; /* NULL: all ranks are near */
    alarm_state alarm;
    error failure; /* the first of this rank */
} queued_collectives;

static queued_collectives *queued_of(collectives *c) {
    return (queued_collectives *)c;
}

/* ---- workspace ---- */

static bool in_order_of_ranks(const collective *o) {
    return o->odd != 0;
}

/* Bytes from one member's part to the next. */
static int64_t slot_of(const collective *o) {
    return round_up(must_multiply(part_count(o, 0), dtype_bytes(o->type)), WORKSPACE_ALIGNMENT);
}

static int64_t workspace_of(const collective *o) {
    if (!sums(o))
        return 0;
    if (in_order_of_ranks(o))
        return must_multiply(o->group_size, slot_of(o));
    return o->kind == OPERATION_REDUCE_SCATTER && (o->accumulate || o->type != DTYPE_F32) ? slot_of(o) : 0;
}

/* Where each stream's workspace begins, counted from 0; returns the bytes of all. */
static int64_t divide_workspace(const collective *list, int32_t count, int64_t begins[COLLECTIVE_STREAMS]) {
    int64_t bytes = 0;
    for (int s = 0; s < COLLECTIVE_STREAMS; s++) {
        int64_t most = 0;
        for (int32_t i = 0; i < count; i++)
            if (list[i].stream == s)
                most = maximum(most, workspace_of(&list[i]));
        begins[s] = bytes;
        bytes += most;
    }
    return bytes;
}

static int64_t queued_workspace(const world *w, const collective *list, int32_t count, transport how) {
    (void)w, (void)how;
    int64_t begins[COLLECTIVE_STREAMS];
    return divide_workspace(list, count, begins);
}

/* ---- queueing ---- */

/* The sum of what members have sent to the workspace. */
static bool add_up(queued_collectives *c, const collective *o, int members, int odd, int64_t count, void *out,
                   dtype out_type, error *e) {
    const part_sum sum = {.parts = c->arena + c->workspace[o->stream],
                          .part_bytes = slot_of(o),
                          .part_type = o->type,
                          .members = members,
                          .odd = odd,
                          .out = out,
                          .out_type = out_type,
                          .count = count,
                          .adds = o->accumulate};
    return count == 0 || c->by->sum(c->device, o->stream, &sum, e);
}

/* Every member gets its part of this rank's input; what comes for this rank goes to the workspace. */
static bool exchange_parts(queued_collectives *c, const collective *o, communicator *with, int64_t own_count,
                           error *e) {
    const int64_t size = dtype_bytes(o->type);
    for (int k = 0; k < o->group_size; k++)
        c->parts[k] = (exchange_part){.send = c->arena + o->input + part_start(o, k) * size,
                                      .send_count = part_count(o, k),
                                      .receive = c->arena + c->workspace[o->stream] + k * slot_of(o),
                                      .receive_count = own_count};
    return c->by->exchange(with, c->parts, o->type, e);
}

static bool queue_reduce_scatter(queued_collectives *c, const collective *o, communicator *with, error *e) {
    char *whole = c->arena + o->input, *out = c->arena + o->output;
    if (in_order_of_ranks(o))
        return exchange_parts(c, o, with, o->count, e) &&
               add_up(c, o, o->group_size, o->odd, o->count, out, DTYPE_F32, e);
    if (workspace_of(o) == 0)
        return c->by->reduce_scatter(with, whole, out, o->count, o->type, e);
    return c->by->reduce_scatter(with, whole, c->arena + c->workspace[o->stream], o->count, o->type, e) &&
           add_up(c, o, 1, 1, o->count, out, DTYPE_F32, e);
}

/* In the order of ranks: each sums a slice, then all get all slices. */
static bool queue_all_reduce(queued_collectives *c, const collective *o, communicator *with, error *e) {
    if (!in_order_of_ranks(o))
        return c->by->all_reduce(with, c->arena + o->input, c->arena + o->output, o->count, o->type, e);
    const int own = member_of(o, c->world->rank);
    const int64_t size = dtype_bytes(o->type), own_count = part_count(o, own);
    char *own_slice = c->arena + o->output + part_start(o, own) * size;
    if (!exchange_parts(c, o, with, own_count, e) ||
        !add_up(c, o, o->group_size, o->odd, own_count, own_slice, o->type, e))
        return false;
    for (int k = 0; k < o->group_size; k++)
        c->parts[k] = (exchange_part){.send = own_slice,
                                      .send_count = k == own ? 0 : own_count,
                                      .receive = c->arena + o->output + part_start(o, k) * size,
                                      .receive_count = k == own ? 0 : part_count(o, k)};
    return c->by->exchange(with, c->parts, o->type, e);
}

static bool queue_collective(queued_collectives *c, int32_t index, error *e) {
    const collective *o = &c->list[index];
    communicator *with = c->links[c->link_of[index]].communicator;
    switch (o->kind) {
    case OPERATION_ALL_GATHER:
        return c->by->all_gather(with, c->arena + o->input, c->arena + o->output, o->count, o->type, e);
    case OPERATION_REDUCE_SCATTER:
        return queue_reduce_scatter(c, o, with, e);
    default:
        return queue_all_reduce(c, o, with, e);
    }
}

static void queued_issue(collectives *base, int32_t index) {
    queued_collectives *c = queued_of(base);
    const collective *o = &c->list[index];
    if (c->failure.code != 0)
        return;
    if (!c->by->count(c->device, o->stream, &c->reached[index], &c->failure) ||
        !queue_collective(c, index, &c->failure))
        return;
    c->device->functions->record(c->device, o->stream, o->event);
    c->by->count(c->device, o->stream, &c->passed[index], &c->failure);
}

static bool queued_complete(collectives *base, int32_t index, int stream, error *e) {
    queued_collectives *c = queued_of(base);
    const collective *o = &c->list[index];
    if (c->failure.code != 0) {
        *e = c->failure;
        return false;
    }
    if (stream != o->stream)
        c->device->functions->wait(c->device, stream, o->event);
    return true;
}

/* ---- the end of a step ---- */

static hang_report stand(void *collectives) {
    const queued_collectives *c = collectives;
    if (c->meets)
        return (hang_report){.state = HANG_MEETS, .step = c->alarm.step - 1};
    if (c->done == c->count || !c->waits || c->begun <= c->done) /* its own work comes first */
        return (hang_report){.state = c->waits ? HANG_COMPUTES : HANG_LATE,
                             .step = c->alarm.step,
                             .index = (int32_t)minimum(c->done, c->count - 1)};
    hang_report mine = {.state = HANG_WAITS, .step = c->alarm.step, .index = c->done};
    bool *missing = memory_allocate((size_t)c->world->size, sizeof *missing);
    const collective *o = &c->list[c->done];
    for (int k = 0; k < o->group_size; k++)
        missing[rank_of(o, k)] =
            c->near[rank_of(o, k)] && !window_marked(c->window, rank_of(o, k), MARK_ISSUED, c->done, c->alarm.step);
    if (hang_list_ranks(missing, c->world->size, mine.missing, sizeof mine.missing) == 0)
        snprintf(mine.missing, sizeof mine.missing, "none known");
    free(missing);
    return mine;
}

/* Afterwards the device's streams come to an end, whatever the other ranks do. */
static void abort_all(queued_collectives *c) {
    for (int32_t l = 0; l < c->link_count; l++)
        if (c->links[l].communicator != NULL)
            c->by->abort(c->links[l].communicator);
    c->link_count = 0;
}

/* Looks how far the device has come, and lets the peers see it; whether it has done another collective. */
static bool come_further(queued_collectives *c) {
    const int64_t step = c->alarm.step;
    const int32_t before = c->done;
    for (; c->begun < c->count && *(volatile int64_t *)&c->reached[c->begun] >= step; c->begun++)
        window_mark(c->window, MARK_ISSUED, c->begun, step);
    while (c->done < c->begun && *(volatile int64_t *)&c->passed[c->done] >= step)
        c->done++;
    return c->done > before;
}

/* What an occasional look finds wrong with a collective that does not come. */
static bool look_around(queued_collectives *c, error *e) {
    const collective *o = c->done < c->count ? &c->list[c->done] : NULL;
    for (int k = 0; o != NULL && k < o->group_size; k++)
        if (alarm_find_dead(&c->alarm, rank_of(o, k), o->name, e))
            return false;
    for (int32_t l = 0; l < c->link_count; l++)
        if (!c->by->healthy(c->links[l].communicator, e)) {
            alarm_raise(&c->alarm, (failure){.error = *e, .speaker = NOBODY_LOST});
            return false;
        }
    return true;
}

/* Waits for an event behind all collectives. The time of each begins when those before it are done. */
static bool wait_for_event(queued_collectives *c, int32_t event, error *e) {
    patience p = patience_begin();
    double waited = 0, next_look = LOOK_SECONDS;
    while (!c->device->functions->recorded(c->device, event)) {
        if (alarm_raised(&c->alarm, e))
            return false;
        if (come_further(c)) {
            p = patience_begin();
            next_look = LOOK_SECONDS;
        }
        if (waited > next_look) {
            next_look = waited + LOOK_SECONDS;
            if (!look_around(c, e))
                return false;
        }
        if (waited > c->alarm.timeout)
            return alarm_time_out(&c->alarm, e);
        waited = patience_pause(&p);
    }
    return true;
}

static bool end_step(queued_collectives *c, bool good) {
    c->waits = false;
    if (!good) {
        abort_all(c);
        return false;
    }
    c->begun = c->done = 0;
    c->alarm.step++;
    return true;
}

static bool queued_finish(collectives *base, error *e) {
    queued_collectives *c = queued_of(base);
    bool good = c->failure.code == 0;
    if (!good)
        *e = c->failure;
    c->waits = true;
    for (int32_t i = 0; good && i < c->count; i++)
        good = wait_for_event(c, c->list[i].event, e);
    return end_step(c, good);
}

static bool queued_finish_replayed(collectives *base, int32_t event, error *e) {
    queued_collectives *c = queued_of(base);
    c->waits = true;
    return end_step(c, c->count == 0 || wait_for_event(c, event, e));
}

static void queued_poll(collectives *base) {
    (void)base; /* the device moves everything */
}

static collectives_times queued_spent(collectives *base, int stream, bool reset) {
    (void)base, (void)stream, (void)reset;
    return (collectives_times){.waiting = NAN, .moving = NAN};
}

static bool queued_time_out(collectives *base, error *e) {
    queued_collectives *c = queued_of(base);
    c->meets = true;
    return alarm_time_out(&c->alarm, e);
}

static void queued_fail(collectives *base, const error *e) {
    queued_collectives *c = queued_of(base);
    alarm_raise(&c->alarm, (failure){.error = *e, .speaker = NOBODY_LOST});
    abort_all(c);
}

/* ---- opening ---- */

static int32_t link_for(queued_collectives *c, const collective *o) {
    for (int32_t l = 0; l < c->link_count; l++)
        if (c->links[l].stream == o->stream && c->links[l].stride == o->group_stride &&
            c->links[l].size == o->group_size)
            return l;
    c->links[c->link_count] = (group_link){.stream = o->stream, .stride = o->group_stride, .size = o->group_size};
    return c->link_count++;
}

/* The rings' files, if they are those of the group that begins at group_first. */
static ring_files rings_for(const queued_collectives *c, const group_link *l, int group_first) {
    const world *w = c->world;
    int here = 0;
    for (int k = 0; k < l->size; k++)
        here += w->node_of[group_first + k * l->stride] == w->node;
    return here == w->local_size && l->size == here * c->graph.nodes ? c->graph.files : (ring_files){0};
}

/* The first member of each group makes its id. */
static bool open_link(queued_collectives *c, group_link *l, int group_first, double seconds, error *e) {
    world *w = c->world;
    const int member = (w->rank - group_first) / l->stride;
    char id[COMMUNICATOR_ID_BYTES] = {0};
    char *ids = memory_allocate((size_t)w->size, sizeof id);
    if (member == 0)
        c->by->make_id(id, e);
    bool good = world_agree(w, e);
    if (good) {
        world_all_gather(w, id, sizeof id, ids);
        good = c->by->open(c->device, l->stream, ids + (size_t)group_first * sizeof id, l->size, member,
                           rings_for(c, l, group_first), seconds, &l->communicator, e);
        good = alarm_agree(&c->alarm, e) && good;
    }
    free(ids);
    return good;
}

static bool open_links(queued_collectives *c, double seconds, error *e) {
    for (int32_t i = 0; i < c->count; i++) {
        const int32_t before = c->link_count;
        c->link_of[i] = link_for(c, &c->list[i]);
        if (c->link_count > before && !open_link(c, &c->links[before], c->list[i].group_first, seconds, e))
            return false;
    }
    return true;
}

/* By which ranks tell each other of failures; no collective goes this way. */
static bool open_alarm(queued_collectives *c, const collectives_settings *settings, error *e) {
    world *w = c->world;
    bool *far = memory_allocate((size_t)w->size, sizeof *far);
    for (int r = 0; r < w->size; r++) {
        c->near[r] = is_near(w, TRANSPORT_AUTO, r);
        far[r] = !c->near[r];
    }
    const collectives_settings aside = {
        .device = settings->device, .arena = &c->marks, .transport = TRANSPORT_AUTO, .timeout = settings->timeout};
    if (shared_memory_create(WORKSPACE_ALIGNMENT, &c->marks, e) &&
        window_open(w, &c->marks, c->near, c->count, &c->window, e) && w->nodes > 1)
        messages_open(w, far, &aside, c->list, 0, &c->messages, e);
    free(far);
    c->alarm = (alarm_state){.world = w,
                             .window = c->window,
                             .messages = c->messages,
                             .near = c->near,
                             .list = c->list,
                             .count = c->count,
                             .timeout = settings->timeout,
                             .step = 1,
                             .stand = stand,
                             .collectives = c};
    return e->code == 0;
}

static void free_host(queued_collectives *c) {
    free(c->near);
    free(c->parts);
    free(c->links);
    free(c->link_of);
    free(c->list);
    free(c);
}

static void queued_close(collectives *base) {
    queued_collectives *c = queued_of(base);
    for (int32_t l = 0; l < c->link_count; l++)
        if (c->links[l].communicator != NULL)
            c->by->close(c->links[l].communicator);
    if (c->messages != NULL)
        messages_close(c->messages);
    if (c->window != NULL)
        window_close(c->window);
    if (c->marks.base != NULL)
        shared_memory_release(&c->marks);
    if (c->reached != NULL)
        c->by->drop_counters(c->reached);
    free_host(c);
}

static queued_collectives *allocate(world *w, const collectives_settings *settings, const collective *list,
                                    int32_t count) {
    queued_collectives *c = memory_allocate(1, sizeof *c);
    *c = (queued_collectives){.base.backend = &collectives_queued,
                              .world = w,
                              .device = settings->device,
                              .by = settings->device->communication,
                              .arena = settings->arena->base,
                              .graph = settings->graph,
                              .count = count};
    c->near = memory_allocate((size_t)w->size, sizeof *c->near);
    c->parts = memory_allocate((size_t)w->size, sizeof *c->parts);
    c->list = memory_allocate((size_t)count, sizeof *c->list);
    c->link_of = memory_allocate((size_t)count, sizeof *c->link_of);
    c->links = memory_allocate((size_t)count, sizeof *c->links);
    for (int32_t i = 0; i < count; i++)
        c->list[i] = list[i];
    divide_workspace(list, count, c->workspace);
    for (int s = 0; s < COLLECTIVE_STREAMS; s++)
        c->workspace[s] += settings->workspace;
    return c;
}

static bool queued_open(world *w, const collectives_settings *settings, const collective *list, int32_t count,
                        collectives **opened, error *e) {
    queued_collectives *c = allocate(w, settings, list, count);
    parts_check(w, list, count, settings->arena);
    if (parts_agree(w, c->list, c->count, e) && c->by->make_counters(2 * count, &c->reached, e)) {
        c->passed = c->reached + count;
        open_alarm(c, settings, e);
    }
    if (!world_agree(w, e)) {
        queued_close(&c->base);
        return false;
    }
    if (!open_links(c, settings->timeout, e)) {
        free_host(c); /* the process can only end: what closes the rest may wait for ranks that do not come */
        return false;
    }
    *opened = &c->base;
    return true;
}

const collective_backend collectives_queued = {
    .name = "queued",
    .workspace = queued_workspace,
    .open = queued_open,
    .close = queued_close,
    .issue = queued_issue,
    .complete = queued_complete,
    .release = queued_complete, /* a device is done with its part of a collective when all have what they need of it */
    .finish = queued_finish,
    .finish_replayed = queued_finish_replayed,
    .poll = queued_poll,
    .spent = queued_spent,
    .time_out = queued_time_out,
    .fail = queued_fail,
};
