/* What a mistyped word was probably meant to be. */
#ifndef FSDP_LAUNCH_NEAREST_H
#define FSDP_LAUNCH_NEAREST_H

#include <stddef.h>

/* Letters to insert, drop, replace or swap with their neighbour to turn one word into the other (optimal string
 * alignment distance). */
size_t word_distance(const char *a, const char *b);

/* Keeps in *best the candidate with the smallest distance to `word`, where it is near enough to be a slip of the
 * fingers: at most one letter in three. *best starts as NULL. */
void nearest_consider(const char *word, const char *candidate, const char **best);

#endif
