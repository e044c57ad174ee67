/* Private to comm/: parts of collectives as MPI messages, to and from ranks that a window does not reach. A message
 * belongs to a collective (index), a peer (its place `member` in the collective's group) and a round, so that those of
 * several collectives can be under way at once: an all_reduce needs two rounds, slices to those who sum them, and sums
 * back. Nothing blocks and nothing is allocated after opening. */
#ifndef FSDP_COMM_MESSAGES_H
#define FSDP_COMM_MESSAGES_H

#include "comm/collectives.h"
#include "comm/failure.h"
#include "comm/hang.h"

typedef struct messages messages;

/* Collective over the world. far[size]: the ranks that are reached by messages. Of the settings, arena and workspace
 * are used. `list` outlives the messages. */
bool messages_open(const world *w, const bool *far, const collectives_settings *settings, const collective *list,
                   int32_t count, messages **opened, error *e);
/* Messages that are still under way (after a failure only) are left to MPI. */
void messages_close(messages *m);

/* Round one, from this rank's input: to sum, a far member gets its part of this rank's tensor; to gather, this rank's
 * part. */
void messages_send_parts(messages *m, int32_t index);
/* Round one: parts to gather come to their place in the output, parts to sum to slots of the workspace, which only one
 * collective uses at a time. */
void messages_receive_parts(messages *m, int32_t index);
const void *messages_slot(const messages *m, int32_t index, int member);
/* Round two of an all_reduce, once all parts have left and come: slices of the output. */
void messages_exchange_sums(messages *m, int32_t index);

/* Whether the latest message to or from this member has left, or has come. True when there was none. Each call lets
 * MPI make progress. */
bool messages_sent(messages *m, int32_t index, int member);
bool messages_received(messages *m, int32_t index, int member);
bool messages_all_sent(messages *m, int32_t index);

/* To all far ranks; at most once. */
void messages_fail(messages *m, const failure *f);
/* Whether a far rank failed. Each call lets MPI make progress. */
bool messages_failed(messages *m, failure *f);

/* In a hang: tells all far ranks where this rank stands, once; takes into all[rank] what has come from far ranks. */
void messages_report(messages *m, const hang_report *mine);
void messages_take_reports(messages *m, hang_report *all);

#endif
