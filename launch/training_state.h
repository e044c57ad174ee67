/* The training state of a rank, where its step program keeps it, as what a checkpoint is made of. */
#ifndef FSDP_LAUNCH_TRAINING_STATE_H
#define FSDP_LAUNCH_TRAINING_STATE_H

#include "launch/plan.h"
#include "launch/training_record.h"
#include "shard/checkpoint.h"

/* The parts of a plan's training step in the memory of its run. */
typedef struct training_state {
    const step *of;
    run *run;
} training_state;

/* Reads and writes through *s, which outlives it. */
checkpoint_state training_state_of(const plan *p, training_state *s);

/* Updates that were applied: Adam's t. */
int64_t training_state_updates(const plan *p, run *r);

/* Dynamic loss scaling: from the device into a position, and from the position of a checkpoint to the device, after
 * weights_prepare. A position without it gives the first scale; a run whose scale is constant keeps that. */
void training_state_read_loss_scale(const plan *p, run *r, position *at);
void training_state_write_loss_scale(const plan *p, run *r, const position *at);

/* Fills this rank's shards, and the count of updates, from a checkpoint, after weights_prepare. */
bool training_state_restore(const plan *p, run *r, const checkpoint_manifest *m, const char *path, error *e);

#endif
