/* What a checkpoint says about the run that it is of: the "training" object of its manifest.
 *
 *   position     {windows, tokens, skipped}: windows taken and tokens trained on, and bad steps in a row; with dynamic
 *                loss scaling {loss_scale, good_steps} as well, the state after the step (engine/device/update.h)
 *   ranks        that saved it
 *   mathematics  what a run must agree on to go on: model, optimizer, data (files by size and a sample of their
 *                content, tokens, order, seed), batch (sequences of a step), sequence (tokens of a sequence)
 *   config       resolved, as in metrics.jsonl */
#ifndef FSDP_LAUNCH_TRAINING_RECORD_H
#define FSDP_LAUNCH_TRAINING_RECORD_H

#include "launch/config.h"
#include "launch/data.h"

/* Where a run is between two steps. */
typedef struct position {
    int64_t step;    /* steps done */
    int64_t windows; /* taken from the data since the run's first step; counted in windows of the present length */
    int64_t tokens;  /* trained on */
    int skipped;     /* steps in a row whose update was left out */
    /* Of dynamic loss scaling, when it was saved; 0: not known, or none. */
    double loss_scale, good_steps;
} position;

/* A new reference. Reads samples of the data files: for one rank to do. */
json_t *training_record(const config *c, const model_shape *shape, const data *d, int ranks, position at);

/* Whether a run with this record may go on from that of a checkpoint at `path`. What changes the mathematics is
 * refused by name, unless [output] accept names its kind. EXIT_MODEL. */
bool training_record_accept(const json_t *saved, const json_t *present, const config *c, const char *path, error *e);

/* The position to go on from: `step` is the checkpoint's. EXIT_MODEL when the record does not hold one. */
bool training_record_position(const json_t *saved, int64_t step, const config *c, const char *path, position *at,
                              error *e);

/* Keys of [optimizer], [train] and [precision] whose values differ, as {"optimizer.learning_rate": [saved, present]};
 * a new reference. */
json_t *training_record_changes(const json_t *saved, const json_t *present);

/* The shape of the model that a checkpoint is of. EXIT_MODEL. */
bool training_record_shape(const json_t *saved, const char *path, model_shape *shape, error *e);

#endif
