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
#include "comm/collectives_host.h"

#include "comm/patience.h"
#include "engine/checked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORKSPACE_ALIGNMENT = 256 };

/* How often a waiting rank looks whether those that it waits for are alive. */
static const double LOOK_SECONDS = 0.25;

static host_collectives *host_of(collectives *c) {
    return (host_collectives *)c;
}

/* --- Failures --- */

/* Where this rank stands. */
static hang_report stand(void *collectives) {
    host_collectives *c = collectives;
    if (c->meets)
        return (hang_report){.state = HANG_MEETS, .step = c->alarm.step - 1};
    int32_t index = c->awaited;
    if (c->waits && !progress_has_place(c, index)) /* it waits for the collective that has the workspace */
        index = c->holder;
    hang_report mine = {.state = c->waits ? HANG_WAITS : HANG_LATE, .step = c->alarm.step, .index = index};
    if (!c->waits)
        return mine;
    bool *missing = memory_allocate((size_t)c->world->size, sizeof *missing);
    for (int k = 0; k < c->list[index].group_size; k++)
        missing[rank_of(&c->list[index], k)] = !progress_has_come(c, index, k);
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
        if (!progress_has_come(c, index, k) && alarm_find_dead(&c->alarm, rank_of(o, k), o->name, e))
            return true;
    return false;
}

/* --- Waiting --- */

/* The slow way of wait_until. */
static bool wait_long(host_collectives *c, int32_t index, bool (*ready)(host_collectives *, int32_t), error *e) {
    patience p = patience_begin();
    double waited = 0, next_look = LOOK_SECONDS, moved_before = progress_moved(c), late_before = c->late;
    c->wait_begun = p.begun;
    do {
        progress_advance_pending(c);
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
    times_of(c, index)->waiting +=
        patience_clock() - p.begun - (progress_moved(c) - moved_before) - (c->late - late_before);
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
        progress_take_workspace(c);
    messages_send_parts(c->messages, index);
    times_of(c, index)->moving += patience_clock() - begun;
}

static void host_poll(collectives *base) {
    host_collectives *c = host_of(base);
    if (c->pending_count == 0)
        return;
    collectives_times *first = times_of(c, c->pending[0]); /* looking counts for it */
    double begun = patience_clock(), moved_before = progress_moved(c);
    progress_advance_pending(c);
    first->moving += patience_clock() - begun - (progress_moved(c) - moved_before);
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
    return wait_through(c, &c->done_before[c->list[index].stream], index, progress_advance, e);
}

static bool release(host_collectives *c, int32_t index, error *e) {
    return complete(c, index, e) &&
           wait_through(c, &c->released_before[c->list[index].stream], index, progress_released, e);
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
