/* The folder that holds the checkpoints of a run, FOLDER/step-NNNNNNNN each. Names with more behind the digits are no
 * checkpoints: step-00000100.incomplete is being written (or was, by a killed run), step-00000100.superseded was
 * written by a run that was then started again from before it. */
#ifndef FSDP_SHARD_CHECKPOINT_FOLDER_H
#define FSDP_SHARD_CHECKPOINT_FOLDER_H

#include "shard/checkpoint_manifest.h"

#define CHECKPOINT_INCOMPLETE ".incomplete"
#define CHECKPOINT_SUPERSEDED ".superseded"

/* FOLDER/step-NNNNNNNN; freed by the caller. */
char *checkpoint_path(const char *folder, int64_t step);

/* Steps of the checkpoints in the folder, newest first, freed by the caller; *count is 0 when the folder is missing. */
bool checkpoint_steps(const char *folder, int64_t **steps, size_t *count, error *e);

/* Removes all but the `keep` newest, and what killed writers left. */
bool checkpoint_prune(const char *folder, int64_t keep, error *e);

/* Renames those later than `step` to NAME.superseded (.superseded-2 ...), so that they are neither resumed from nor
 * removed. *count: how many. */
bool checkpoint_supersede(const char *folder, int64_t step, int64_t *count, error *e);

/* The text of PATH/manifest.json and its parsed form; *text is freed by the caller. */
bool checkpoint_manifest_load(const char *path, char **text, size_t *bytes, checkpoint_manifest **loaded, error *e);

#endif
