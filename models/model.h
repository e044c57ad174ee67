/* A transformer: its shape, its parameters by unit, and its forward operations. */
#ifndef FSDP_MODELS_MODEL_H
#define FSDP_MODELS_MODEL_H

#include "engine/parameter.h"
#include "engine/precision.h"
#include "engine/program.h"

typedef enum model_family { FAMILY_GPT2, FAMILY_LLAMA, FAMILY_COUNT } model_family;

/* Llama 3's change of the rotary frequencies for long contexts (Hugging Face rope_type "llama3"). */
typedef struct rope_scaling {
    bool llama3; /* false: plain rotary embedding, the rest unused */
    double factor, low_frequency_factor, high_frequency_factor;
    int64_t original_context;
} rope_scaling;

typedef struct model_shape {
    model_family family;
    int64_t layers, width, heads, kv_heads, head_width, feed_forward, vocabulary, context;
    bool tied; /* the head uses the embedding table */
    double norm_epsilon;
    double rope_theta;
    rope_scaling rope;
    double initialisation; /* standard deviation of normal initial values */
} model_shape;

typedef struct model {
    model_shape shape;
    parameter_list list; /* units in order: embedding, blocks (unit_blocks to a unit), head; with a tied head: root
                            (embedding, final norm and head), blocks */
} model;

model *model_create(const model_shape *shape, int64_t unit_blocks);
void model_destroy(model *m);

const char *model_family_name(model_family family);

/* Model FLOPs of one trained token, forward and backward: 6 x matmul parameters (head included) + 6 x layers x heads x
 * head width x sequence (causal attention counted once; PaLM's appendix B counts it twice). */
double model_flops_per_token(const model *m, int64_t sequence);

/* What the forward operations are to end in. */
typedef enum head_mode {
    HEAD_LOSS,  /* token losses, the head in chunks of rows */
    HEAD_LOGITS /* the logits of the whole micro-batch, for sampling */
} head_mode;

/* Writes the forward operations of one micro-batch of `sequences` sequences of `sequence` tokens: a program with
 * tensors of role PARAMETER (tensor.parameter names which), INPUT (copied in) and ACTIVATION. Rotary tables are
 * persistent constants named "rope.cosine" and "rope.sine", to be filled by model_rope_table. */
program *model_forward(const model *m, int64_t sequences, int64_t sequence, head_mode mode,
                       const precision_settings *precision);

/* Fills [sequence, head_width / 2] cosines and sines, computed in fp64. */
void model_rope_table(const model_shape *shape, int64_t sequence, float *cosine, float *sine);

/* Initial values of elements first .. first + count of parameter `index`: a function of seed, parameter and element
 * alone, so that any rank can make any slice. */
void model_initial_values(const model *m, int32_t index, uint64_t seed, int64_t first, int64_t count, float *values);

#endif
