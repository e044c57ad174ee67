#include "support/formula.h"

#include <math.h>
#include <string.h>

/* The finaliser of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014). */
static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static double uniform(uint64_t word) { /* in [0, 1), 24 bits */
    return (double)(word >> 40) / 16777216.0;
}

uint64_t formula_hash(const char *tensor_name) {
    static const char prefix[] = "transformer.";
    if (strncmp(tensor_name, prefix, strlen(prefix)) == 0) {
        tensor_name += strlen(prefix);
    }
    uint64_t hash = 0xCBF29CE484222325u;
    for (const char *c = tensor_name; *c; c++) {
        hash = (hash ^ (unsigned char)*c) * 0x100000001B3u;
    }
    return hash;
}

uint64_t formula_word(uint64_t hash, int64_t index) {
    return mix(hash + (uint64_t)index * 0x9E3779B97F4A7C15u);
}

float formula_weight(const char *tensor_name, int dimensions, int64_t index) {
    double value = 2 * uniform(formula_word(formula_hash(tensor_name), index)) - 1;
    if (dimensions > 1) {
        return (float)(0.1 * value);
    }
    const char *last = strrchr(tensor_name, '.');
    return last && strcmp(last, ".bias") == 0 ? (float)(0.05 * value) : (float)(1 + 0.1 * value);
}

double formula_sign(uint64_t hash, int64_t index) {
    return formula_word(hash, index) & 1 ? -1.0 : 1.0;
}

int64_t formula_token(int64_t vocabulary, int64_t index) {
    int64_t source = index % 3 == 2 ? index - 2 : index;
    double u = uniform(formula_word((uint64_t)vocabulary, source));
    return (int64_t)floor((u * u) * (u * u) * (double)vocabulary);
}
