/* A run's settings: config.ini, with overrides from the command line.
 *
 *   config_read           file and arguments -> config; types, ranges, words, required keys
 *   config_resolve_model  preset, model folder and explicit keys -> the model's shape
 *   config_check          what several keys and the number of ranks say together
 *
 * A field has its key's name. Fields of words hold the word's place in the key's list (config_keys.c), for which there
 * is an enum here or the type named beside it; -1: not given, no default. Numbers without a default are 0, texts NULL
 * and lists empty until given or derived. Sizes and counts are whole numbers; times are seconds.
 *
 * Every error is EXIT_USAGE and starts with the place where the key was given, "config.ini:12" or "argument
 * train.steps=7", and the key: "config.ini:12: [train] steps = 0: out of range; ...". */
#ifndef FSDP_LAUNCH_CONFIG_H
#define FSDP_LAUNCH_CONFIG_H

#include "launch/ini.h"
#include "models/model.h"

#include <jansson.h>

enum config_switch { CONFIG_NO, CONFIG_YES };
enum config_nonfinite { CONFIG_NONFINITE_STOP, CONFIG_NONFINITE_SKIP };
enum config_strategy { CONFIG_FULL, CONFIG_GRADIENTS, CONFIG_OPTIMIZER, CONFIG_NONE };
enum config_reduce_every { CONFIG_EACH, CONFIG_LAST };
enum config_reduce { CONFIG_FAST, CONFIG_REPRODUCIBLE };
enum config_ring { CONFIG_RING_NCCL, CONFIG_RING_HWLOC, CONFIG_RING_AUTO };
enum config_device_kind { CONFIG_DEVICE_AUTO, CONFIG_DEVICE_CPU, CONFIG_DEVICE_CUDA };
enum config_checkpoint_failure { CONFIG_CONTINUE, CONFIG_FAILURE_STOP };
enum config_compute { CONFIG_FP32, CONFIG_TF32, CONFIG_BF16, CONFIG_FP16, CONFIG_FP8 };
enum config_communicate { CONFIG_COMMUNICATE_FP32, CONFIG_COMMUNICATE_BF16 };
enum config_model_dtype { CONFIG_MODEL_FP32, CONFIG_MODEL_BF16 };

typedef struct config_model {
    int family; /* model_family */
    int preset; /* place in presets (launch/presets.h) */
    char *from;
    int64_t layers, width, heads, kv_heads, head_width, feed_forward, vocabulary, context;
    int tied; /* config_switch */
    double norm_epsilon, rope_theta, initialisation;
} config_model;

typedef struct config_data {
    ini_words train, validation;
    double validation_fraction;
    int format; /* token_format (launch/token_files.h) */
    char *tokenizer;
    int order; /* data_order (launch/data.h) */
    char *cache;
} config_data;

typedef struct config_train {
    int64_t steps, global_batch, micro_batch, sequence, seed, validate_every, validation_batches;
    int nonfinite; /* config_nonfinite */
} config_train;

typedef struct config_optimizer {
    int kind; /* one: adamw */
    double learning_rate, minimum_learning_rate;
    int schedule; /* rate_schedule (optim/learning_rate.h) */
    int64_t warmup;
    double betas[2];
    double epsilon, weight_decay, clip;
} config_optimizer;

typedef struct config_shard {
    int strategy;  /* config_strategy */
    int64_t group; /* 0: not given, or the node, until config_check */
    int64_t prefetch;
    int keep_gathered; /* config_switch */
    int reduce_every;  /* config_reduce_every */
    int64_t unit;
    int recompute;  /* recompute_policy */
    int64_t memory; /* bytes per rank; 0: auto */
    int reduce;     /* config_reduce */
    int transport;  /* transport (comm/collectives.h) */
    int ring;       /* config_ring */
    double timeout;
} config_shard;

typedef struct config_precision {
    int compute;       /* config_compute */
    int communicate;   /* config_communicate */
    double loss_scale; /* 0: dynamic */
} config_precision;

typedef struct config_device {
    int kind; /* config_device_kind */
    int64_t threads;
    int share; /* config_switch */
    int bind;  /* config_switch */
    char *topology;
    int graph; /* config_switch */
    int fuse;  /* config_switch */
} config_device;

typedef struct config_output {
    char *folder;
    int64_t log_every, checkpoint_every, keep;
    int checkpoint_background; /* config_switch */
    int checkpoint_failure;    /* config_checkpoint_failure */
    char *resume;
    ini_words accept;
    int model_dtype;       /* config_model_dtype */
    int trace;             /* config_switch */
    double trace_steps[2]; /* first and last, from 1, whole */
} config_output;

/* How a key was given. */
typedef struct config_source {
    char *where; /* "config.ini:12", "argument train.steps=7"; NULL: not given */
    char *text;  /* the value as typed, quotes removed */
    bool argument;
} config_source;

typedef struct config {
    config_model model;
    config_data data;
    config_train train;
    config_optimizer optimizer;
    config_shard shard;
    config_precision precision;
    config_device device;
    config_output output;
    char *path;             /* of the file, as typed */
    config_source *sources; /* [config_key_count] */
} config;

/* Reads the file, then the arguments "section.key=value", which win over it. output.folder and train.sequence's
 * default are derived; the caller frees the config. */
bool config_read(const char *path, const char *const *arguments, int argument_count, config **read, error *e);
void config_free(config *c);

/* Finds the model's shape and writes it back into c->model; derives train.sequence. `from`: the shape that the model
 * folder c->model.from declares, or NULL. tokenizer_vocabulary: 0 when the data does not say (token files). */
bool config_resolve_model(config *c, const model_shape *from, int64_t tokenizer_vocabulary, model_shape *shape,
                          error *e);

/* Checks what keys and ranks say together, after the model was resolved; derives shard.group, keep_gathered and
 * reduce_every. node_of: [ranks], the node of each, numbered in the order of their lowest ranks; NULL: one node. */
bool config_check(config *c, int ranks, const int *node_of, error *e);

/* Whether the key of this field (&c->train.steps) was given, rather than left to its default or derived. */
bool config_given(const config *c, const void *field);

/* Kinds of change that a resumed run may be told to accept ("data", "batch", "sequence"), and whether it was. */
bool config_acceptable(const char *kind);
bool config_accepts(const config *c, const char *kind);

/* Describes what is wrong with the value of a field; returns false. The text says what was found and what would do. */
bool config_refuse(const config *c, const void *field, error *e, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* All sections and keys with their values, as the run uses them; a new reference. */
json_t *config_json(const config *c);

/* Every key: default, accepted values, meaning; one line each. */
void config_print_keys(FILE *out);

#endif
