/* Starts fsdp_train for fsdp_scaling: the program beside this one, under a launcher. */
#ifndef FSDP_LAUNCH_SCALING_LAUNCH_H
#define FSDP_LAUNCH_SCALING_LAUNCH_H

#include "engine/error.h"

#include <stdint.h>

typedef struct scaling_launch {
    const char *launcher; /* words: a program and its arguments; "-n RANKS" follows */
    const char *config;
    const char *const *overrides; /* [override_count]: the user's; those that a measurement needs win over them */
    int override_count;
    int ranks;
    int64_t global_batch;
    int steps, skipped;
    bool traced;        /* trace the steps behind the skipped ones: the device measures no others */
    const char *folder; /* exists */
} scaling_launch;

/* Whether fsdp_train takes the config at this number of ranks: it plans, and its words go to standard error. The error
 * has its exit code. */
bool scaling_launch_check(const scaling_launch *l, error *e);

/* Trains, and leaves the run's metrics.jsonl at `metrics`. Of a run that fails, standard error is passed on; the error
 * has the launcher's exit code if it is one of fsdp_train's, else EXIT_LAUNCH. A launcher that is not there is
 * EXIT_LAUNCH. */
bool scaling_launch_run(const scaling_launch *l, const char *metrics, error *e);

#endif
