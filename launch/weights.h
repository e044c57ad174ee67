/* Brings weights into the shards and out of them: initial values, a model folder to start from, the trained model. */
#ifndef FSDP_LAUNCH_WEIGHTS_H
#define FSDP_LAUNCH_WEIGHTS_H

#include "launch/plan.h"

/* Zeroes all persistent tensors, fills the rotary tables and sets the first loss scale: before one of the next two. */
void weights_prepare(const plan *p, const step *s, run *r, int64_t sequence);

/* Fills this rank's shards with initial values. */
void weights_initialise(const plan *p, const step *s, run *r, uint64_t seed);

/* Fills this rank's shards from a Hugging Face folder, reading only what it owns. `warning`: as huggingface_open. */
bool weights_load(const plan *p, const step *s, run *r, const char *folder, char **warning, error *e);

/* Writes the model to FOLDER as a Hugging Face folder, complete or absent. Collective: rank 0 writes what the others
 * send it, a piece at a time; every rank gets the same verdict. from: NULL or the folder that the model came from. */
bool weights_save(const plan *p, const step *s, run *r, world *w, const char *folder, dtype type, const char *from,
                  error *e);

#endif
