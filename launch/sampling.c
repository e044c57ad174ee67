#include "launch/sampling.h"

#include "engine/checked.h"
#include "engine/rng.h"

#include <math.h>
#include <stdlib.h>

typedef struct candidate {
    float logit;
    int32_t token;
} candidate;

static int largest_first(const void *left, const void *right) {
    const candidate *a = left, *b = right;
    if (a->logit != b->logit)
        return a->logit > b->logit ? -1 : 1;
    return (a->token > b->token) - (a->token < b->token);
}

/* Walks the distribution in candidate order until it has passed `uniform` of its weight. */
static int32_t draw(const candidate *list, int64_t count, double temperature, double uniform) {
    double total = 0;
    for (int64_t i = 0; i < count; i++)
        total += exp(((double)list[i].logit - (double)list[0].logit) / temperature);
    double rest = uniform * total;
    for (int64_t i = 0; i < count - 1; i++) {
        rest -= exp(((double)list[i].logit - (double)list[0].logit) / temperature);
        if (rest < 0)
            return list[i].token;
    }
    return list[count - 1].token;
}

int32_t sample_token(const sampling *how, int64_t position, const float *logits, int64_t vocabulary) {
    candidate *list = memory_allocate((size_t)vocabulary, sizeof *list);
    int32_t chosen = 0;
    for (int64_t i = 0; i < vocabulary; i++) {
        list[i] = (candidate){logits[i], (int32_t)i};
        chosen = isfinite(logits[i]) ? chosen : -1;
    }
    if (chosen == 0) {
        qsort(list, (size_t)vocabulary, sizeof *list, largest_first);
        const int64_t count = how->top_k > 0 ? minimum(how->top_k, vocabulary) : vocabulary;
        chosen = how->temperature == 0
                     ? list[0].token
                     : draw(list, count, how->temperature, rng_uniform(how->seed, 0, (uint64_t)position));
    }
    free(list);
    return chosen;
}
