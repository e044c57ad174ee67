/* Private to comm/: parts of collectives as MPI messages, to and from ranks that a window does not reach. A message
 * belongs to a collective (index), a peer (its place `member` in the collective's group) and a round, so that those of
 * several collectives can be under way at once. Nothing blocks and nothing is allocated after opening. */
#ifndef FSDP_COMM_MESSAGES_H
#define FSDP_COMM_MESSAGES_H

#include "comm/collectives.h"
#include "comm/failure.h"

typedef struct messages messages;

/* An all_reduce needs two rounds: slices to those who sum them, sums back. */
typedef enum message_round { ROUND_PARTS, ROUND_SUMS, ROUND_COUNT } message_round;

/* Collective over the world. far[size]: the ranks that are reached by messages. */
bool messages_open(const world *w, const bool *far, const collective *list, int32_t count, messages **opened, error *e);
/* Messages that are still under way (after a failure only) are left to MPI. */
void messages_close(messages *m);

void messages_send(messages *m, int32_t index, int member, message_round round, const void *data, int64_t count);
void messages_receive(messages *m, int32_t index, int member, message_round round, void *data, int64_t count);

/* Whether the latest message to or from this member has left, or has come. True when there was none. Each call lets
 * MPI make progress. */
bool messages_sent(messages *m, int32_t index, int member);
bool messages_received(messages *m, int32_t index, int member);

/* To all far ranks; at most once. */
void messages_fail(messages *m, const failure *f);
/* Whether a far rank failed. Each call lets MPI make progress. */
bool messages_failed(messages *m, failure *f);

#endif
