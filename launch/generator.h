/* A model from a Hugging Face folder, run forward to continue a row of tokens. */
#ifndef FSDP_LAUNCH_GENERATOR_H
#define FSDP_LAUNCH_GENERATOR_H

#include "comm/world.h"
#include "engine/device/device.h"
#include "models/model.h"

typedef struct generator generator;

/* w: a world of one rank; world and device outlive the generator. *warning: lines for the user, freed by the caller;
 * NULL: none. */
bool generator_open(const char *folder, world *w, device *d, generator **opened, char **warning, error *e);
void generator_close(generator *g);

const model_shape *generator_shape(const generator *g);

/* Logits of the token that follows `count` > 0 tokens, [vocabulary]. Of more tokens than the model's context the last
 * ones count. */
bool generator_logits(generator *g, const int32_t *tokens, int64_t count, float *logits, error *e);

#endif
