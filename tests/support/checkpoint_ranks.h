/* Checkpoints saved and loaded by loopback ranks whose state is plain memory: every element of a parameter's weights
 * and moments has a value of its own, and padding is a pattern that must neither be written to disk nor be touched. */
#ifndef FSDP_TESTS_SUPPORT_CHECKPOINT_RANKS_H
#define FSDP_TESTS_SUPPORT_CHECKPOINT_RANKS_H

#include "shard/checkpoint.h"

/* Parameters of one element, of fewer than there are ranks, of prime counts, and larger ones; `together`: parameters to
 * a unit; few: the small ones only. Released with test_list_destroy. */
parameter_list *test_list_create(int together, bool few);
void test_list_destroy(parameter_list *list);

typedef struct rank_layout {
    int ranks, group, together;
    bool few;
} rank_layout;

/* Saves FOLDER/step-...; fails the program if that fails. */
void test_checkpoint_save(rank_layout as, const char *folder, int64_t step);

/* The same by way of a copy, behind which the state is lost before a file is written. */
void test_checkpoint_save_copied(rank_layout as, const char *folder, int64_t step);

/* Loads PATH and compares everything; false with *why on a difference. */
bool test_checkpoint_load(rank_layout as, const char *path, error *why);

/* Whether the checkpoint at PATH is whole. */
bool test_checkpoint_whole(const char *path, error *why);

enum { TEST_PADDING = 0x7fc0dead }; /* bits of a NaN that no value has */

#endif
