#include "comm/alarm.h"

#include "comm/patience.h"
#include "comm/world_state.h"
#include "engine/checked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Takes what has come; whether all have answered. */
static bool take_reports(alarm_state *a, hang_report *all) {
    bool complete = true;
    if (a->messages != NULL)
        messages_take_reports(a->messages, all);
    for (int r = 0; r < a->world->size; r++) {
        if (a->near[r])
            window_reported(a->window, r, &all[r]);
        complete &= all[r].state != HANG_SILENT;
    }
    return complete;
}

/* What a near rank that does not answer issued last, in this step or the one before it. */
static hang_report last_seen(const alarm_state *a, int rank) {
    hang_report seen = {.state = HANG_SILENT, .index = -1};
    for (int64_t step = a->step; a->near[rank] && step > 0 && step >= a->step - 1 && seen.index < 0; step--)
        for (int32_t i = 0; i < a->count; i++)
            if (window_marked(a->window, rank, MARK_ISSUED, i, step))
                seen = (hang_report){.state = HANG_SILENT, .step = step, .index = i};
    return seen;
}

/* Says where this rank stands, and takes the answers of all that can; freed by the caller. */
static hang_report *exchange_reports(alarm_state *a) {
    const hang_report mine = a->stand(a->collectives);
    hang_report *all = memory_allocate((size_t)a->world->size, sizeof *all);
    window_report(a->window, &mine);
    if (a->messages != NULL)
        messages_report(a->messages, &mine);
    all[a->world->rank] = mine;
    patience p = patience_begin();
    while (!take_reports(a, all) && patience_pause(&p) < HANG_ANSWER_SECONDS)
        continue;
    return all;
}

/* All ranks make the same table. */
static void describe_hang(alarm_state *a, failure *f) {
    hang_report *all = exchange_reports(a);
    for (int r = 0; r < a->world->size; r++)
        if (all[r].state == HANG_SILENT)
            all[r] = last_seen(a, r);
    f->speaker = hang_describe(all, a->world->size, a->list, a->count, a->timeout, f->speaker, &f->error);
    free(all);
}

static void adopt(alarm_state *a, const failure *f) {
    a->raised = true;
    a->failure = *f;
    if (f->hang)
        describe_hang(a, &a->failure);
    if (f->speaker == NOBODY_LOST)
        world_limit(a->world, a->timeout);
    else if (f->hang)
        world_doubt(a->world, a->failure.speaker);
    else
        world_lose(a->world, a->failure.speaker);
}

bool alarm_raised(alarm_state *a, error *e) {
    failure f;
    if (!a->raised && (window_failed(a->window, &f) || (a->messages != NULL && messages_failed(a->messages, &f)) ||
                       world_lost(a->world, &f)))
        adopt(a, &f);
    if (a->raised)
        *e = a->failure.error;
    return a->raised;
}

void alarm_raise(alarm_state *a, failure f) {
    if (a->raised) /* all know it already */
        return;
    world_name_rank(a->world, &f.error);
    window_fail(a->window, &f);
    window_failed(a->window, &f); /* another rank of the node may have been first: all follow that one */
    if (a->messages != NULL)
        messages_fail(a->messages, &f);
    adopt(a, &f);
}

bool alarm_time_out(alarm_state *a, error *e) {
    if (alarm_raised(a, e))
        return false;
    alarm_raise(a, (failure){.error = {.code = EXIT_LAUNCH}, .speaker = a->world->rank, .hang = true});
    *e = a->failure.error;
    return false;
}

/* The lowest rank that can; of several nodes the one that the heartbeat would choose. */
static int speaker_without(const world *w, int rank) {
    int speaker = rank == 0 ? 1 : 0;
    while (rank == 0 && w->nodes > 1 && w->node_of[speaker] == 0)
        speaker++;
    return speaker;
}

bool alarm_find_dead(alarm_state *a, int rank, const char *name, error *e) {
    if (window_alive(a->window, rank))
        return false;
    error_set(e, EXIT_LAUNCH, "rank %d (%s) has died: it was waited for in %s", rank, a->world->host, name);
    alarm_raise(a, (failure){.error = *e, .speaker = speaker_without(a->world, rank)});
    return true;
}

/* Says who does not answer; returns the lowest rank that does. */
static int name_silent(alarm_state *a, error *e) {
    const int size = a->world->size;
    hang_report *all = exchange_reports(a);
    bool *silent = memory_allocate((size_t)size, sizeof *silent);
    char ranks[64];
    int speaker = a->world->rank;
    for (int r = size - 1; r >= 0; r--) {
        silent[r] = all[r].state == HANG_SILENT;
        speaker = silent[r] ? speaker : r;
    }
    const int number = hang_list_ranks(silent, size, ranks, sizeof ranks);
    const size_t length = strlen(e->message);
    if (number > 0)
        snprintf(e->message + length, sizeof e->message - length, "; no answer from rank%s %s", number > 1 ? "s" : "",
                 ranks);
    free(silent);
    free(all);
    return speaker;
}

bool alarm_agree(alarm_state *a, error *e) {
    const bool failed = e->code != 0;
    if (failed)
        world_doubt(a->world, 0);
    if (world_agree(a->world, e))
        return true;
    if (failed && a->world->state->broken)
        world_doubt(a->world, name_silent(a, e));
    return false;
}
