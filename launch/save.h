/* What a run saves: its model, and checkpoints to go on from. Collective. */
#ifndef FSDP_LAUNCH_SAVE_H
#define FSDP_LAUNCH_SAVE_H

#include "launch/train.h"
#include "shard/checkpoint_manifest.h"

/* Writes FOLDER/model. */
bool save_model(trainer *t, error *e);

/* Writes a checkpoint and then removes older ones beyond [output] keep. A failure is a warning on standard error and
 * t->unsaved, unless checkpoint_failure = stop; the time it took is told to metrics. Does nothing where there is one of
 * this step. */
bool save_checkpoint(trainer *t, const position *at, error *e);

/* Fills this rank's shards, and Adam's count of updates, from a checkpoint, after weights_prepare. */
bool save_restore(const plan *p, run *r, const checkpoint_manifest *m, const char *path, error *e);

#endif
