#include "comm/collectives_host.h"

#include "comm/patience.h"

#include <math.h>

/* A waiting rank looks at least this often (comm/patience.c). One that sees later what has come had no core. */
static const double LATE_SECONDS = 2e-3;

static int own_member(const host_collectives *c, const collective *o) {
    return member_of(o, c->world->rank);
}

double progress_moved(const host_collectives *c) {
    double seconds = 0;
    for (int s = 0; s < COLLECTIVE_STREAMS; s++)
        seconds += c->times[s].moving;
    return seconds;
}

void progress_take_workspace(host_collectives *c) {
    c->holder = NO_COLLECTIVE;
    for (int32_t p = 0; p < c->pending_count && c->holder == NO_COLLECTIVE; p++)
        if (sums(&c->list[c->pending[p]]) && c->stages[c->pending[p]] == STAGE_ISSUED)
            c->holder = c->pending[p];
    if (c->holder != NO_COLLECTIVE)
        messages_receive_parts(c->messages, c->holder);
}

bool progress_has_place(const host_collectives *c, int32_t index) {
    bool through_workspace = c->messages != NULL && sums(&c->list[index]) && c->stages[index] == STAGE_ISSUED;
    return !through_workspace || c->holder == index;
}

static const mark awaited_marks[] = {
    [STAGE_ISSUED] = MARK_ISSUED, [STAGE_SUMMED] = MARK_REDUCED, [STAGE_DONE] = MARK_READ};

bool progress_has_come(host_collectives *c, int32_t index, int member) {
    const collective *o = &c->list[index];
    stage s = c->stages[index];
    if (!is_far(c, o, member))
        return window_marked(c->window, rank_of(o, member), awaited_marks[s], index, c->alarm.step);
    if (s == STAGE_DONE)
        return messages_sent(c->messages, index, member);
    return progress_has_place(c, index) && messages_received(c->messages, index, member);
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
        if (!progress_has_come(c, index, k))
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

bool progress_advance(host_collectives *c, int32_t index) {
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
            progress_take_workspace(c);
    }
    if (c->stages[index] == STAGE_SUMMED && all_have_come(c, index)) {
        move(c, index, copy_parts);
        become_done(c, index);
    }
    return c->stages[index] == STAGE_DONE;
}

bool progress_released(host_collectives *c, int32_t index) {
    return all_have_come(c, index);
}

void progress_advance_pending(host_collectives *c) {
    for (int32_t p = 0; p < c->pending_count;) {
        int32_t index = c->pending[p];
        p += !progress_advance(c, index); /* when done it has left the list */
    }
}
