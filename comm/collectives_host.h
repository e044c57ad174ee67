/* Private to collectives_host*.c: what the host's collectives consist of, and the progress of one of them. */
#ifndef FSDP_COMM_COLLECTIVES_HOST_H
#define FSDP_COMM_COLLECTIVES_HOST_H

#include "comm/alarm.h"
#include "comm/messages.h"
#include "comm/parts.h"
#include "comm/transfer.h"
#include "comm/window.h"

/* A collective's way through one step. */
typedef enum stage {
    STAGE_IDLE = 0,
    STAGE_ISSUED, /* waits for the parts of the others */
    STAGE_SUMMED, /* all_reduce: has its slice of the sum, waits for the slices of the others */
    STAGE_DONE
} stage;

enum { NO_COLLECTIVE = -1 };

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

static inline collectives_times *times_of(host_collectives *c, int32_t index) {
    return &c->times[c->list[index].stream];
}

static inline bool is_far(const host_collectives *c, const collective *o, int member) {
    return !c->near[rank_of(o, member)];
}

/* Moves what can be moved without waiting; true when the collective is done. */
bool progress_advance(host_collectives *c, int32_t index);
/* The same for all that are pending. */
void progress_advance_pending(host_collectives *c);
/* Whether a collective that is done is released: all have read what they need of this rank. */
bool progress_released(host_collectives *c, int32_t index);

/* Gives the workspace to the pending collective whose turn it is. */
void progress_take_workspace(host_collectives *c);
/* Whether the parts of far members have memory to come to. */
bool progress_has_place(const host_collectives *c, int32_t index);
/* Whether a member has done what this rank waits for at the collective's stage. */
bool progress_has_come(host_collectives *c, int32_t index, int member);

/* Seconds of moving bytes, of all streams. */
double progress_moved(const host_collectives *c);

#endif
