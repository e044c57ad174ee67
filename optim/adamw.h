/* The end of a training step: norm, clip and update on the shards (formulas: engine/device/update.h). */
#ifndef FSDP_OPTIM_ADAMW_H
#define FSDP_OPTIM_ADAMW_H

#include "engine/parameter.h"
#include "engine/step.h"
#include "shard/flat.h"

typedef struct optimizer_settings {
    double beta_first, beta_second, epsilon, weight_decay;
    double clip;                 /* 0: off */
    int64_t loss_scale_interval; /* where gradients are scaled: engine/device/update.h */
} optimizer_settings;

/* Appends: squares of every granule, an all-gather of them and of the losses, their sums, the update of every unit,
 * and a copy of the result to the host. */
void optimizer_append(step *s, const parameter_list *list, const flat_layout *layout,
                      const optimizer_settings *settings);

/* The end of a validation step: an all-gather of the loss sums and a copy to the host: [ranks, passes]. */
void validation_append(step *s);

#endif
