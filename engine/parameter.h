/* The parameters of a model, by unit: what models/ declares and shard/, optim/ and the Hugging Face files work with. */
#ifndef FSDP_ENGINE_PARAMETER_H
#define FSDP_ENGINE_PARAMETER_H

#include <stdbool.h>
#include <stdint.h>

typedef enum initial_value {
    INITIAL_NORMAL,   /* normal, the model's standard deviation */
    INITIAL_RESIDUAL, /* the same divided by sqrt(2 * layers) */
    INITIAL_ONE,
    INITIAL_ZERO
} initial_value;

/* Consecutive rows of a parameter that Hugging Face stores as a tensor of its own: q, k and v are one parameter here,
 * and so are gate and up. */
typedef struct parameter_part {
    char *name;   /* "model.layers.3.self_attn.q_proj.weight" */
    int64_t rows; /* of the parameter's first dimension */
} parameter_part;

enum { PARAMETER_PARTS = 3 };

typedef struct parameter {
    char *name; /* "block3.attention.qkv" */
    int32_t unit;
    int dimensions;   /* 1 or 2 */
    int64_t shape[2]; /* row-major; shape[1] is 1 for one dimension */
    initial_value initial;
    bool decay; /* weight decay applies: two or more dimensions */
    parameter_part parts[PARAMETER_PARTS];
    int part_count;
} parameter;

/* Sorted by unit. A unit is what is gathered and reduced together. */
typedef struct parameter_list {
    parameter *items;
    int32_t count;
    char **unit_names; /* "embedding", "block0", ..., "head" or "root" */
    int32_t unit_count;
    int64_t elements; /* sum over items */
} parameter_list;

static inline int64_t parameter_elements(const parameter *p) {
    return p->shape[0] * p->shape[1];
}

#endif
