/* What a run saves: its model, and checkpoints to go on from. Collective, between steps. */
#ifndef FSDP_LAUNCH_SAVE_H
#define FSDP_LAUNCH_SAVE_H

#include "launch/train.h"

/* Writes FOLDER/model. */
bool save_model(trainer *t, error *e);

/* ---- checkpoints ----
 *
 * With [output] checkpoint_background = yes a checkpoint begins with a copy of the state in the device's host memory,
 * which was allocated at start-up (plan->copy_bytes); a thread writes it while training goes on. Ranks tell each other
 * between steps, with what they tell each other anyway, whether their threads are done, and only when all are they meet
 * and go on to the next part of the work; so nobody waits. There is one checkpoint at a time.
 *
 * A killed run goes on from its newest complete checkpoint. Written in the foreground, that is at most one interval
 * (checkpoint_every) back. In the background it is at most one interval before the checkpoint that is being written, so
 * that what is lost is at most one interval and the steps done since that one was started: as many as its writing
 * takes, and at most another interval, since the next one waits for it. (metrics.jsonl has both moments. A checkpoint
 * that failed is one that is not there.)
 *
 * When a checkpoint is complete, older ones beyond [output] keep have been removed, and metrics get its event. A
 * failure is a warning on standard error and t->unsaved or, with checkpoint_failure = stop, the error. */

/* Before the first step. An error is this rank's own. */
bool save_open(trainer *t, error *e);
void save_close(trainer *t);

/* Writes a checkpoint, waiting for one that is on its way; does nothing when there is one of this step. `wait`: until
 * it is complete; else in the background if the run has memory for it. */
bool save_checkpoint(trainer *t, const position *at, bool wait, error *e);

/* Whether this rank's thread is done. Local. */
bool save_idle(const trainer *t);

/* After every step behind which the threads of all ranks were idle. */
bool save_advance(trainer *t, error *e);

/* Completes a checkpoint that is on its way. */
bool save_finish(trainer *t, error *e);

/* After a failure, when ranks can no longer meet: gives up what is on its way. Local. */
void save_abandon(trainer *t);

#endif
