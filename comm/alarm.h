/* Private to comm/: how the ranks of a job learn that one of them cannot go on, and what is said then. Ranks of a node
 * tell each other through the window, those of other nodes by messages, and that ranks of other nodes are lost is found
 * by the heartbeat (comm/heartbeat.h); the first failure that a rank hears of is the one it keeps. When a wait has
 * lasted too long, every rank says where it stands and all make the same table. */
#ifndef FSDP_COMM_ALARM_H
#define FSDP_COMM_ALARM_H

#include "comm/collectives.h"
#include "comm/failure.h"
#include "comm/hang.h"
#include "comm/messages.h"
#include "comm/window.h"

/* All that is pointed to belongs to the caller and outlives the alarm. */
typedef struct alarm_state {
    world *world;
    window *window;
    messages *messages; /* NULL: all ranks are near */
    const bool *near;   /* [world size]: reached through the window; the others by messages */
    const collective *list;
    int32_t count;
    double timeout;
    int64_t step; /* the latest that began, from 1 */

    /* Where this rank stands now. */
    hang_report (*stand)(void *collectives);
    void *collectives;

    bool raised;
    failure failure;
} alarm_state;

/* Whether a rank has failed; then *e is what all ranks end with. Cheap. */
bool alarm_raised(alarm_state *a, error *e);

/* Tells all ranks, unless one has been faster. */
void alarm_raise(alarm_state *a, failure f);

/* This rank has waited too long: raises the alarm; returns false with the table of who waits for whom, or with the
 * failure that another rank has told of. */
bool alarm_time_out(alarm_state *a, error *e);

/* Whether `rank`, waited for in the collective called `name`, is of this node and its process has ended: raises the
 * alarm. Costs a system call. */
bool alarm_find_dead(alarm_state *a, int rank, const char *name, error *e);

/* world_agree behind something outside of steps that ranks can only do together. Where it has failed on this rank,
 * others may stand still: they are waited for a few seconds, and then named, and the lowest that answers prints. */
bool alarm_agree(alarm_state *a, error *e);

#endif
