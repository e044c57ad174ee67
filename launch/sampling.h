/* The next token, drawn from a model's logits. */
#ifndef FSDP_LAUNCH_SAMPLING_H
#define FSDP_LAUNCH_SAMPLING_H

#include <stdint.h>

typedef struct sampling {
    double temperature; /* logits are divided by it; 0: always the largest (of equals the first) */
    int64_t top_k;      /* only the k largest logits count (of equals the first ones); 0: all */
    uint64_t seed;
} sampling;

/* The token after `position` tokens: the same for the same seed, position and logits. -1: a logit is not finite. */
int32_t sample_token(const sampling *how, int64_t position, const float *logits, int64_t vocabulary);

#endif
