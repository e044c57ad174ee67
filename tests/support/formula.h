/* Weights and tokens of test models by formula, so that none are committed: the twin of golden/formula.py, which says
 * the same in Python. All in integers and double, so that both give the same bits. */
#ifndef FSDP_TESTS_SUPPORT_FORMULA_H
#define FSDP_TESTS_SUPPORT_FORMULA_H

#include <stdint.h>

/* FNV-1a, 64 bits, of a Hugging Face tensor name without GPT-2's optional prefix "transformer.". */
uint64_t formula_hash(const char *tensor_name);

/* The random word of an element, counted within the tensor of this hash. */
uint64_t formula_word(uint64_t hash, int64_t index);

/* Matrices and embeddings in +-0.1, norm weights in 1 +- 0.1, biases (names that end in ".bias") in +-0.05. */
float formula_weight(const char *tensor_name, int dimensions, int64_t index);

/* +1 or -1: the direction in which a whole tensor is projected on one number. */
double formula_sign(uint64_t hash, int64_t index);

/* Token `index` of the stream for a vocabulary: small tokens are more frequent, and every third one repeats the one
 * two before it, so that there is something to learn. */
int64_t formula_token(int64_t vocabulary, int64_t index);

#endif
