/* Finds the checkpoint that a run goes on from, as [output] resume says. */
#ifndef FSDP_LAUNCH_RESUME_H
#define FSDP_LAUNCH_RESUME_H

#include "launch/plan.h"
#include "launch/training_record.h"
#include "shard/checkpoint.h"

typedef struct resume {
    char *path;
    checkpoint_manifest *manifest; /* NULL: the run begins at the beginning, and the rest is unused */
    position at;
    json_t *changes; /* rank 0: as training_record_changes */
} resume;

/* Collective, after weights_prepare on the run `r`, whose state is filled from the checkpoint that is found. Rank 0
 * looks; all bytes are compared with their checksums while they are loaded, by all ranks together. With resume = auto a
 * damaged checkpoint is passed over with a warning on standard error, and it is an error (EXIT_MODEL) when there are
 * checkpoints but none is whole; one that belongs to other mathematics is an error always. On success every rank has
 * the same `found`. */
bool resume_find(const config *c, world *w, const plan *p, const data *d, run *r, resume *found, error *e);
void resume_release(resume *r);

/* FOLDER/checkpoints of the run; freed by the caller. */
char *resume_folder(const config *c);

#endif
