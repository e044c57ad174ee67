/* The collectives of a device that works at once, on memory that the host reaches.
 *
 * Inside a node a rank pulls straight from the other ranks' arenas: every arena is shared memory, the arenas of all
 * ranks have the same layout, so a peer's input lies at the same offset as one's own. Nothing is copied twice and no
 * staging buffer exists. Pages of a peer's arena are dropped from this process after use, so that they do not count
 * as its resident memory. Between nodes parts travel as point-to-point messages.
 *
 * Sums are made in fp32, whatever travels: runs of `odd` members of the group are summed left to right, in the order of
 * ranks, and these sums pairwise (odd == 0: all left to right). The same bits on every rank and every run.
 *
 * Waiting yields the core (spin briefly, then yield, then sleep in growing steps), so more ranks than cores is an
 * ordinary case. */
#include "comm/alarm.h"
#include "comm/messages.h"
#include "comm/parts.h"
#include "comm/patience.h"
#include "comm/transfer.h"
#include "comm/world_state.h"
#include "engine/checked.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A collective's way through one step. */
typedef enum stage {
    STAGE_IDLE = 0,
    STAGE_ISSUED, /* waits for the parts of the others */
    STAGE_SUMMED, /* all_reduce: has its slice of the sum, waits for the slices of the others */
    STAGE_DONE
} stage;

enum { NO_COLLECTIVE = -1, WORKSPACE_ALIGNMENT = 256 };

/* A waiting rank looks at least this often (comm/patience.c). One that sees later what has come had no core. */
static const double LATE_SECONDS = 2e-3;

/* How often a waiting rank looks whether those that it waits for are alive. */
static const double LOOK_SECONDS = 0.25;

typedef struct host_collectives {
    collectives base;
    world *world;
    pool *pool;
    char *arena;
    bool *near; /* [world size]: reached through the window, this rank included; the others by messages */
    window *window;
    messages *messages; /* NULL: all ranks are near */
    collective *list;
    int32_t count;
    stage *stages;   /* [count] */
    double *done_at; /* [count] */
    /* The collectives of a stream before these numbers are done, and released. */
    int32_t done_before[COLLECTIVE_STREAMS], released_before[COLLECTIVE_STREAMS];

    /* Collectives with far members that were issued and are not done, in the order of issue. Those that sum need the
     * workspace for the parts that come; they get it one after the other in this order, which is the same on every
     * rank, so that nobody waits for a part whose sender waits for this rank. */
    int32_t *pending, pending_count;
    int32_t holder; /* of the workspace */

    part *parts; /* [world size]: of the transfer under way */
    alarm_state alarm;
    collectives_times times[COLLECTIVE_STREAMS];
    int32_t awaited; /* the collective that is or was waited for last */
    bool waits;      /* and has not come yet */
    bool meets;      /* this rank has done all of the step and waits for the others at its end */
    double wait_begun;
    double late; /* seconds in which what was waited for had come, unseen; not a part of waiting */
} host_collectives;

static host_collectives *host_of(collectives *c) {
    return (host_collectives *)c;
}

static int own_member(const host_collectives *c, const collective *o) {
    return member_of(o, c->world->rank);
}

static collectives_times *times_of(host_collectives *c, int32_t index) {
    return &c->times[c->list[index].stream];
}

static double moved(const host_collectives *c) {
    double seconds = 0;
    for (int s = 0; s < COLLECTIVE_STREAMS; s++)
        seconds += c->times[s].moving;
    return seconds;
}

static bool is_far(const host_collectives *c, const collective *o, int member) {
    return !c->near[rank_of(o, member)];
}

static void take_workspace(host_collectives *c) {
    c->holder = NO_COLLECTIVE;
    for (int32_t p = 0; p < c->pending_count && c->holder == NO_COLLECTIVE; p++)
        if (sums(&c->list[c->pending[p]]) && c->stages[c->pending[p]] == STAGE_ISSUED)
            c->holder = c->pending[p];
    if (c->holder != NO_COLLECTIVE)
        messages_receive_parts(c->messages, c->holder);
}

/* --- Progress of one collective --- */

/* Whether the parts of far members have memory to come to. */
static bool has_place(const host_collectives *c, int32_t index) {
    bool through_workspace = c->messages != NULL && sums(&c->list[index]) && c->stages[index] == STAGE_ISSUED;
    return !through_workspace || c->holder == index;
}

static const mark awaited_marks[] = {
    [STAGE_ISSUED] = MARK_ISSUED, [STAGE_SUMMED] = MARK_REDUCED, [STAGE_DONE] = MARK_READ};

/* Whether a member has done what this rank waits for at the collective's stage. */
static bool has_come(host_collectives *c, int32_t index, int member) {
    const collective *o = &c->list[index];
    stage s = c->stages[index];
    if (!is_far(c, o, member))
        return window_marked(c->window, rank_of(o, member), awaited_marks[s], index, c->alarm.step);
    if (s == STAGE_DONE)
        return messages_sent(c->messages, index, member);
    return has_place(c, index) && messages_received(c->messages, index, member);
}

/* How long what this rank waits for has been there; 0: it came a moment ago, or nobody knows when. */
static double lateness(const host_collectives *c, int32_t index) {
    const collective *o = &c->list[index];
    double came = c->wait_begun;
    for (int k = 0; k < o->group_size; k++) {
        if (is_far(c, o, k))
            return 0;
        came = fmax(came, window_marked_at(c->window, rank_of(o, k), awaited_marks[c->stages[index]], index));
    }
    const double late = patience_clock() - came;
    return late > LATE_SECONDS ? late : 0;
}

static bool all_have_come(host_collectives *c, int32_t index) {
    for (int k = 0; k < c->list[index].group_size; k++)
        if (!has_come(c, index, k))
            return false;
    if (c->waits && index == c->awaited)
        c->late += lateness(c, index);
    return true;
}

static void sum_parts(host_collectives *c, int32_t index) {
    const collective *o = &c->list[index];
    int own = own_member(c, o);
    int64_t start = part_start(o, own), bytes = part_count(o, own) * dtype_bytes(o->type);
    int64_t offset = o->input + start * dtype_bytes(o->type);
    for (int k = 0; k < o->group_size; k++) {
        part *p = &c->parts[k];
        *p = (part){.bytes = bytes, .rank = NO_RANK, .offset = offset};
        if (is_far(c, o, k)) {
            p->from = messages_slot(c->messages, index, k);
        } else {
            p->rank = rank_of(o, k);
            p->from = window_at(c->window, p->rank, offset);
        }
    }
    bool whole = o->kind == OPERATION_ALL_REDUCE; /* this rank's slice of it */
    const summation sum = {.parts = c->parts,
                           .count = o->group_size,
                           .odd = o->odd > 0 ? o->odd : o->group_size,
                           .type = o->type,
                           .out = c->arena + o->output + (whole ? start * dtype_bytes(o->type) : 0),
                           .out_type = whole ? o->type : DTYPE_F32,
                           .accumulate = o->accumulate};
    transfer_sum(c->pool, c->window, &sum);
}

/* Pulls the parts of the near members, those after this rank first, so that not all ranks read one rank's memory at
 * once. Parts of far members have come in place. `source`: bytes from the start of each member's arena to its part. */
static void near_part(host_collectives *c, const collective *o, int member, int64_t source, part *p) {
    int rank = rank_of(o, member);
    int64_t size = dtype_bytes(o->type);
    *p = (part){.from = window_at(c->window, rank, source),
                .to = c->arena + o->output + part_start(o, member) * size,
                .bytes = part_count(o, member) * size,
                .rank = rank,
                .offset = source};
}

static void copy_parts(host_collectives *c, int32_t index) {
    const collective *o = &c->list[index];
    int own = own_member(c, o), count = 0;
    for (int i = 1; i <= o->group_size; i++) {
        int k = (own + i) % o->group_size;
        if (is_far(c, o, k))
            continue;
        int64_t in_output = o->output + part_start(o, k) * dtype_bytes(o->type);
        near_part(c, o, k, sums(o) || part_in_place(o, own) ? in_output : o->input, &c->parts[count]);
        count += c->parts[count].from != c->parts[count].to;
    }
    transfer_copy(c->pool, c->window, c->parts, count);
}

static void move(host_collectives *c, int32_t index, void (*transfer)(host_collectives *, int32_t)) {
    double begun = patience_clock();
    transfer(c, index);
    times_of(c, index)->moving += patience_clock() - begun;
}

static void leave_pending(host_collectives *c, int32_t index) {
    int32_t kept = 0;
    for (int32_t p = 0; p < c->pending_count; p++)
        if (c->pending[p] != index)
            c->pending[kept++] = c->pending[p];
    c->pending_count = kept;
}

static void become_done(host_collectives *c, int32_t index) {
    window_mark(c->window, MARK_READ, index, c->alarm.step);
    c->stages[index] = STAGE_DONE;
    c->done_at[index] = patience_clock();
    leave_pending(c, index);
}

static void become_summed(host_collectives *c, int32_t index) {
    c->stages[index] = STAGE_SUMMED;
    window_mark(c->window, MARK_REDUCED, index, c->alarm.step);
    if (c->messages != NULL)
        messages_exchange_sums(c->messages, index);
}

/* Moves what can be moved without waiting; true when the collective is done. */
static bool advance(host_collectives *c, int32_t index) {
    const collective *o = &c->list[index];
    if (c->stages[index] == STAGE_ISSUED) {
        if (!all_have_come(c, index))
            return false;
        /* The sums come back into memory that is being sent, if the all_reduce is in place. */
        if (o->kind == OPERATION_ALL_REDUCE && c->messages != NULL && !messages_all_sent(c->messages, index))
            return false;
        move(c, index, sums(o) ? sum_parts : copy_parts);
        if (o->kind == OPERATION_ALL_REDUCE)
            become_summed(c, index);
        else
            become_done(c, index);
        if (c->holder == index)
            take_workspace(c);
    }
    if (c->stages[index] == STAGE_SUMMED && all_have_come(c, index)) {
        move(c, index, copy_parts);
        become_done(c, index);
    }
    return c->stages[index] == STAGE_DONE;
}

static bool released(host_collectives *c, int32_t index) {
    return all_have_come(c, index);
}

static void advance_pending(host_collectives *c) {
    for (int32_t p = 0; p < c->pending_count;) {
        int32_t index = c->pending[p];
        p += !advance(c, index); /* when done it has left the list */
    }
}

static void host_poll(collectives *base) {
    host_collectives *c = host_of(base);
    if (c->pending_count == 0)
        return;
    collectives_times *first = times_of(c, c->pending[0]); /* looking counts for it */
    double begun = patience_clock(), moved_before = moved(c);
    advance_pending(c);
    first->moving += patience_clock() - begun - (moved(c) - moved_before);
}

/* --- Failures --- */

/* Where this rank stands. */
static hang_report stand(void *collectives) {
    host_collectives *c = collectives;
    if (c->meets)
        return (hang_report){.state = HANG_MEETS, .step = c->alarm.step - 1};
    int32_t index = c->awaited;
    if (c->waits && !has_place(c, index)) /* it waits for the collective that has the workspace */
        index = c->holder;
    hang_report mine = {.state = c->waits ? HANG_WAITS : HANG_LATE, .step = c->alarm.step, .index = index};
    if (!c->waits)
        return mine;
    bool *missing = memory_allocate((size_t)c->world->size, sizeof *missing);
    for (int k = 0; k < c->list[index].group_size; k++)
        missing[rank_of(&c->list[index], k)] = !has_come(c, index, k);
    if (hang_list_ranks(missing, c->world->size, mine.missing, sizeof mine.missing) == 0)
        snprintf(mine.missing, sizeof mine.missing, "none now");
    free(missing);
    return mine;
}

static bool host_time_out(collectives *base, error *e) {
    host_collectives *c = host_of(base);
    c->meets = true;
    return alarm_time_out(&c->alarm, e);
}

static void host_fail(collectives *base, const error *e) {
    alarm_raise(&host_of(base)->alarm, (failure){.error = *e, .speaker = NOBODY_LOST});
}

static bool find_dead(host_collectives *c, int32_t index, error *e) {
    const collective *o = &c->list[index];
    for (int k = 0; k < o->group_size; k++)
        if (!has_come(c, index, k) && alarm_find_dead(&c->alarm, rank_of(o, k), o->name, e))
            return true;
    return false;
}

/* --- Waiting --- */

/* The slow way of wait_until. */
static bool wait_long(host_collectives *c, int32_t index, bool (*ready)(host_collectives *, int32_t), error *e) {
    patience p = patience_begin();
    double waited = 0, next_look = LOOK_SECONDS, moved_before = moved(c), late_before = c->late;
    c->wait_begun = p.begun;
    do {
        advance_pending(c);
        if (alarm_raised(&c->alarm, e))
            return false;
        if (waited > next_look) {
            next_look = waited + LOOK_SECONDS;
            if (find_dead(c, index, e))
                return false;
        }
        if (waited > c->alarm.timeout)
            return alarm_time_out(&c->alarm, e);
        waited = patience_pause(&p);
    } while (!ready(c, index));
    times_of(c, index)->waiting += patience_clock() - p.begun - (moved(c) - moved_before) - (c->late - late_before);
    return true;
}

static bool wait_until(host_collectives *c, int32_t index, bool (*ready)(host_collectives *, int32_t), error *e) {
    c->awaited = index;
    if (alarm_raised(&c->alarm, e))
        return false;
    if (ready(c, index))
        return true;
    c->waits = true;
    const bool good = wait_long(c, index, ready, e);
    c->waits = false;
    return good;
}

static void host_issue(collectives *base, int32_t index) {
    host_collectives *c = host_of(base);
    check(c->stages[index] == STAGE_IDLE && (index == 0 || c->stages[index - 1] != STAGE_IDLE),
          "%s: issued twice in a step, or out of order", c->list[index].name);
    c->stages[index] = STAGE_ISSUED;
    window_mark(c->window, MARK_ISSUED, index, c->alarm.step);
    const collective *o = &c->list[index];
    bool far = false;
    for (int k = 0; k < o->group_size; k++)
        far |= is_far(c, o, k);
    if (!far)
        return;
    double begun = patience_clock();
    c->pending[c->pending_count++] = index;
    if (!sums(o))
        messages_receive_parts(c->messages, index);
    else if (c->holder == NO_COLLECTIVE)
        take_workspace(c);
    messages_send_parts(c->messages, index);
    times_of(c, index)->moving += patience_clock() - begun;
}

/* Waits for all collectives of a stream from *before up to `last`, and moves *before behind it. */
static bool wait_through(host_collectives *c, int32_t *before, int32_t last, bool (*ready)(host_collectives *, int32_t),
                         error *e) {
    for (; *before <= last; ++*before)
        if (c->list[*before].stream == c->list[last].stream && !wait_until(c, *before, ready, e))
            return false;
    return true;
}

static bool complete(host_collectives *c, int32_t index, error *e) {
    check(c->stages[index] != STAGE_IDLE, "%s: completed before it is issued", c->list[index].name);
    return wait_through(c, &c->done_before[c->list[index].stream], index, advance, e);
}

static bool release(host_collectives *c, int32_t index, error *e) {
    return complete(c, index, e) && wait_through(c, &c->released_before[c->list[index].stream], index, released, e);
}

/* Whatever stream asks: when these return, it is so. */
static bool host_complete(collectives *base, int32_t index, int stream, error *e) {
    (void)stream;
    return complete(host_of(base), index, e);
}

static bool host_release(collectives *base, int32_t index, int stream, error *e) {
    (void)stream;
    return release(host_of(base), index, e);
}

static bool host_finish(collectives *base, error *e) {
    host_collectives *c = host_of(base);
    for (int32_t i = 0; i < c->count; i++)
        if (!complete(c, i, e))
            return false;
    for (int32_t i = 0; i < c->count; i++)
        if (!release(c, i, e))
            return false;
    memset(c->stages, 0, (size_t)c->count * sizeof *c->stages);
    memset(c->done_before, 0, sizeof c->done_before);
    memset(c->released_before, 0, sizeof c->released_before);
    c->alarm.step++;
    return true;
}

static collectives_times host_spent(collectives *base, int stream, bool reset) {
    host_collectives *c = host_of(base);
    collectives_times spent = c->times[stream];
    if (reset)
        c->times[stream] = (collectives_times){0};
    return spent;
}

static double host_done_at(const collectives *base, int32_t index) {
    return ((const host_collectives *)base)->done_at[index];
}

/* --- Opening --- */

/* Of sums of messages: 0 when no peer is reached by them. */
static int64_t host_workspace(const world *w, const collective *list, int32_t count, transport how) {
    int64_t bytes = 0;
    for (int32_t i = 0; i < count; i++) {
        int64_t far = 0;
        for (int k = 0; sums(&list[i]) && k < list[i].group_size; k++)
            far += !is_near(w, how, rank_of(&list[i], k));
        bytes = maximum(bytes, must_multiply(far, slot_bytes(&list[i])));
    }
    return round_up(bytes, WORKSPACE_ALIGNMENT);
}

static bool open_transports(host_collectives *c, const collectives_settings *settings, error *e) {
    world *w = c->world;
    if (settings->transport == TRANSPORT_WINDOW && w->nodes > 1)
        return error_set(e, EXIT_LAUNCH, "shared memory does not reach the other %d nodes", w->nodes - 1);
    if (!parts_agree(w, c->list, c->count, e) || !window_open(w, settings->arena, c->near, c->count, &c->window, e))
        return false;
    bool *far = memory_allocate((size_t)w->size, sizeof *far);
    for (int r = 0; r < w->size; r++)
        far[r] = !c->near[r];
    if (w->nodes > 1 || (settings->transport == TRANSPORT_MESSAGES && w->size > 1))
        messages_open(w, far, settings, c->list, c->count, &c->messages, e);
    free(far);
    return e->code == 0;
}

static void host_close(collectives *base) {
    host_collectives *c = host_of(base);
    if (c->messages != NULL)
        messages_close(c->messages);
    if (c->window != NULL)
        window_close(c->window);
    free(c->near);
    free(c->parts);
    free(c->list);
    free(c->stages);
    free(c->done_at);
    free(c->pending);
    free(c);
}

static bool host_open(world *w, const collectives_settings *settings, const collective *list, int32_t count,
                      collectives **opened, error *e) {
    check(count == 0 || !settings->device->functions->queues,
          "the host's collectives cannot wait for the streams of %s", settings->device->functions->name);
    host_collectives *c = memory_allocate(1, sizeof *c);
    *c = (host_collectives){.base.backend = &collectives_host,
                            .world = w,
                            .pool = settings->device->functions->host_threads(settings->device),
                            .arena = settings->arena->base,
                            .count = count,
                            .holder = NO_COLLECTIVE};
    c->near = memory_allocate((size_t)w->size, sizeof *c->near);
    c->parts = memory_allocate((size_t)w->size, sizeof *c->parts);
    c->list = memory_allocate((size_t)count, sizeof *c->list);
    c->stages = memory_allocate((size_t)count, sizeof *c->stages);
    c->done_at = memory_allocate((size_t)count, sizeof *c->done_at);
    c->pending = memory_allocate((size_t)count, sizeof *c->pending);
    for (int32_t i = 0; i < count; i++)
        c->list[i] = list[i];
    for (int r = 0; r < w->size; r++)
        c->near[r] = is_near(w, settings->transport, r);
    parts_check(w, list, count, settings->arena);
    open_transports(c, settings, e);
    c->alarm = (alarm_state){.world = w,
                             .window = c->window,
                             .messages = c->messages,
                             .near = c->near,
                             .list = c->list,
                             .count = count,
                             .timeout = settings->timeout,
                             .step = 1,
                             .stand = stand,
                             .collectives = c};
    if (!world_agree(w, e)) {
        host_close(&c->base);
        return false;
    }
    *opened = &c->base;
    return true;
}

const collective_backend collectives_host = {
    .name = "host",
    .workspace = host_workspace,
    .open = host_open,
    .close = host_close,
    .issue = host_issue,
    .complete = host_complete,
    .release = host_release,
    .finish = host_finish,
    .poll = host_poll,
    .spent = host_spent,
    .done_at = host_done_at,
    .time_out = host_time_out,
    .fail = host_fail,
};
