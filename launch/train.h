/* Trains: step after step with metrics, progress, validation, checkpoints and signals. */
#ifndef FSDP_LAUNCH_TRAIN_H
#define FSDP_LAUNCH_TRAIN_H

#include "launch/data.h"
#include "launch/metrics.h"
#include "launch/plan.h"
#include "launch/training_record.h"

/* Checkpoints that are made while training: launch/save.h. */
typedef struct checkpoints checkpoints;

/* All that training works with. Everything belongs to the caller. */
typedef struct trainer {
    const config *config;
    world *world;
    device *device;
    const plan *plan;
    data *data;
    run *train, *validation; /* NULL: not part of this run */
    metrics *metrics;        /* NULL on ranks above 0, and when only validating */
    position start;          /* where this start goes on; zeros: at the beginning */
    int64_t saved;           /* step of the last checkpoint; -1: none */
    bool unsaved;            /* a later one could not be written */
    checkpoints *checkpoints;
    double started; /* seconds on the monotonic clock, for the end event */
} trainer;

/* How training ended when it did not fail. */
typedef struct train_end {
    int signal;   /* number of the signal that asked for it; 0: all steps are done */
    int64_t step; /* steps done */
} train_end;

/* Collective; on failure every rank has the same error. */
bool train(trainer *t, train_end *end, error *e);

/* Validation loss: token mean over the validation batches. Collective. */
bool validate(trainer *t, double *loss, error *e);

double seconds_now(void);

#endif
