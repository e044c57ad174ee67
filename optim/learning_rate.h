/* Learning-rate schedules: the rate of a step is a function of the step's number alone. */
#ifndef FSDP_OPTIM_LEARNING_RATE_H
#define FSDP_OPTIM_LEARNING_RATE_H

#include <stdint.h>

typedef enum rate_schedule { RATE_CONSTANT, RATE_LINEAR, RATE_COSINE } rate_schedule;

typedef struct rate_settings {
    rate_schedule schedule;
    double rate, minimum;
    int64_t warmup, steps; /* warmup may exceed steps */
} rate_settings;

/* Rate of step `step`, counted from 0: rate * (step + 1) / warmup while step < warmup; then, with
 * p = (step - warmup) / (steps - warmup), cosine: minimum + (rate - minimum) * (1 + cos(pi p)) / 2,
 * linear: rate + (minimum - rate) * p, constant: rate. */
double learning_rate(const rate_settings *settings, int64_t step);

#endif
