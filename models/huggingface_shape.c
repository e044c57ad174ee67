/* config.json into a model's shape. */
#include "engine/checked.h"
#include "models/huggingface.h"
#include "shard/file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One object of a config file under reading. The first failure ends it: later calls return zeros. */
typedef struct settings {
    const char *path;  /* of the file */
    const char *group; /* "" or "rope_scaling.", for messages */
    const json_t *values;
    error *e;
} settings;

/* NULL also for null: both mean the family's default. */
static const json_t *setting(const settings *s, const char *key) {
    const json_t *value = json_object_get(s->values, key);
    return json_is_null(value) ? NULL : value;
}

static bool has(const settings *s, const char *key) {
    return setting(s, key) != NULL;
}

/* A value as the file would write it; freed by the caller. */
static char *text_of(const json_t *value) {
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
    check(text != NULL, "cannot format a setting");
    return text;
}

static void refuse(const settings *s, const char *key, const char *expected) {
    const json_t *value = json_object_get(s->values, key);
    if (value == NULL) {
        error_set(s->e, EXIT_MODEL, "%s: %s%s: missing; expected %s", s->path, s->group, key, expected);
        return;
    }
    char *found = text_of(value);
    error_set(s->e, EXIT_MODEL, "%s: %s%s: found %.200s, expected %s", s->path, s->group, key, found, expected);
    free(found);
}

/* Limits under which the bytes of no set of matrices overflow. */
enum { SIZE_LIMIT = 1 << 20, TOKEN_LIMIT = 1 << 24, LAYER_LIMIT = 1 << 12 };

static int64_t read_size(const settings *s, const char *key, int64_t limit) {
    const json_t *value = setting(s, key);
    int64_t size = json_integer_value(value);
    if (value != NULL && json_is_integer(value) && size >= 1 && size <= limit)
        return size;
    char *expected = memory_format("a whole number from 1 to %lld", (long long)limit);
    refuse(s, key, expected);
    free(expected);
    return 1;
}

static int64_t read_size_or(const settings *s, const char *key, int64_t otherwise) {
    return has(s, key) ? read_size(s, key, SIZE_LIMIT) : otherwise;
}

static double read_positive(const settings *s, const char *key) {
    const json_t *value = setting(s, key);
    double number = json_number_value(value);
    if (value != NULL && json_is_number(value) && number > 0 && isfinite(number))
        return number;
    refuse(s, key, "a positive number");
    return 1;
}

static double read_positive_or(const settings *s, const char *key, double otherwise) {
    return has(s, key) ? read_positive(s, key) : otherwise;
}

static bool read_flag_or(const settings *s, const char *key, bool otherwise) {
    const json_t *value = setting(s, key);
    if (value != NULL && !json_is_boolean(value))
        refuse(s, key, "true or false");
    return value == NULL ? otherwise : json_is_true(value);
}

/* A setting with one value that is built; absent and null mean that value, too. */
typedef struct built {
    const char *key, *value; /* as JSON */
} built;

static void require_built(const settings *s, const built *list) {
    for (; list->key != NULL; list++) {
        const json_t *value = setting(s, list->key);
        json_t *only = json_loads(list->value, JSON_DECODE_ANY, NULL);
        bool same = json_is_number(value) && json_is_number(only) ? json_number_value(value) == json_number_value(only)
                                                                  : json_equal(value, only) != 0;
        json_decref(only);
        if (value == NULL || same)
            continue;
        char *found = text_of(value);
        error_set(s->e, EXIT_MODEL, "%s: %s%s: found %.200s; this changes the mathematics and only %s is built",
                  s->path, s->group, list->key, found, list->value);
        free(found);
    }
}

/* One line about the dropout settings that are not 0; training does not use them. */
static char *dropout_warning(const settings *s, const char *const *keys) {
    char *line = NULL;
    for (; *keys != NULL; keys++) {
        const json_t *value = setting(s, *keys);
        if (value == NULL || json_number_value(value) == 0)
            continue;
        char *found = text_of(value);
        char *longer = line == NULL ? memory_format("%s: dropout is ignored: %s %s", s->path, *keys, found)
                                    : memory_format("%s, %s %s", line, *keys, found);
        free(found);
        free(line);
        line = longer;
    }
    return line;
}

static void read_gpt2(const settings *s, model_shape *shape, char **warning) {
    static const built only[] = {{"activation_function", "\"gelu_new\""},
                                 {"scale_attn_weights", "true"},
                                 {"scale_attn_by_inverse_layer_idx", "false"},
                                 {"reorder_and_upcast_attn", "false"},
                                 {"add_cross_attention", "false"},
                                 {"is_encoder_decoder", "false"},
                                 {"quantization_config", "null"},
                                 {NULL, NULL}};
    static const char *const dropout[] = {"resid_pdrop", "embd_pdrop", "attn_pdrop", NULL};
    require_built(s, only);
    *shape = (model_shape){.family = FAMILY_GPT2,
                           .layers = read_size(s, "n_layer", LAYER_LIMIT),
                           .width = read_size(s, "n_embd", SIZE_LIMIT),
                           .heads = read_size(s, "n_head", SIZE_LIMIT),
                           .vocabulary = read_size(s, "vocab_size", TOKEN_LIMIT),
                           .context = read_size(s, "n_positions", TOKEN_LIMIT),
                           .tied = read_flag_or(s, "tie_word_embeddings", true),
                           .norm_epsilon = read_positive_or(s, "layer_norm_epsilon", 1e-5),
                           .initialisation = read_positive_or(s, "initializer_range", 0.02)};
    shape->kv_heads = shape->heads;
    shape->head_width = shape->width / shape->heads;
    shape->feed_forward = read_size_or(s, "n_inner", 4 * shape->width);
    if (shape->width % shape->heads != 0)
        error_set(s->e, EXIT_MODEL, "%s: n_head: %lld does not divide n_embd %lld", s->path, (long long)shape->heads,
                  (long long)shape->width);
    *warning = dropout_warning(s, dropout);
}

/* One group of rotary settings: rope_scaling (transformers 4) or rope_parameters (5). */
static rope_scaling read_rope_group(const settings *s) {
    static const built only[] = {{"partial_rotary_factor", "1"}, {NULL, NULL}};
    require_built(s, only);
    const json_t *type = has(s, "rope_type") ? setting(s, "rope_type") : setting(s, "type");
    const char *name = type == NULL ? "default" : json_string_value(type);
    if (name != NULL && strcmp(name, "default") == 0)
        return (rope_scaling){.llama3 = false};
    if (name == NULL || strcmp(name, "llama3") != 0) {
        char *found = text_of(type);
        error_set(s->e, EXIT_MODEL, "%s: %srope_type: found %.200s; only \"default\" and \"llama3\" are built", s->path,
                  s->group, found);
        free(found);
        return (rope_scaling){.llama3 = false};
    }
    rope_scaling rope = {.llama3 = true,
                         .factor = read_positive(s, "factor"),
                         .low_frequency_factor = read_positive(s, "low_freq_factor"),
                         .high_frequency_factor = read_positive(s, "high_freq_factor"),
                         .original_context = read_size(s, "original_max_position_embeddings", TOKEN_LIMIT)};
    if (rope.high_frequency_factor <= rope.low_frequency_factor)
        refuse(s, "high_freq_factor", "a number above low_freq_factor");
    return rope;
}

static bool same_rope(const rope_scaling *a, const rope_scaling *b) {
    return a->llama3 == b->llama3 && a->factor == b->factor && a->low_frequency_factor == b->low_frequency_factor &&
           a->high_frequency_factor == b->high_frequency_factor && a->original_context == b->original_context;
}

/* A file may carry the settings of both eras, if they agree. */
static void read_rope(const settings *s, model_shape *shape) {
    const json_t *old = setting(s, "rope_scaling"), *new = setting(s, "rope_parameters");
    settings old_group = {s->path, "rope_scaling.", old, s->e}, new_group = {s->path, "rope_parameters.", new, s->e};
    if (old != NULL && !json_is_object(old))
        refuse(s, "rope_scaling", "an object or null");
    if (new != NULL && !json_is_object(new))
        refuse(s, "rope_parameters", "an object or null");
    rope_scaling from_old = read_rope_group(&old_group), from_new = read_rope_group(&new_group);
    if (old != NULL && new != NULL && !same_rope(&from_old, &from_new))
        error_set(s->e, EXIT_MODEL, "%s: rope_scaling and rope_parameters disagree", s->path);
    shape->rope = new != NULL ? from_new : from_old;

    double top = read_positive_or(s, "rope_theta", 10000);
    shape->rope_theta = read_positive_or(&new_group, "rope_theta", top);
    if (has(s, "rope_theta") && shape->rope_theta != top)
        error_set(s->e, EXIT_MODEL, "%s: rope_theta %.15g and rope_parameters.rope_theta %.15g disagree", s->path, top,
                  shape->rope_theta);
}

static void read_llama(const settings *s, model_shape *shape, char **warning) {
    static const built only[] = {
        {"hidden_act", "\"silu\""},      {"attention_bias", "false"},     {"mlp_bias", "false"},
        {"sliding_window", "null"},      {"partial_rotary_factor", "1"},  {"rope_interleaved", "false"},
        {"is_encoder_decoder", "false"}, {"quantization_config", "null"}, {NULL, NULL}};
    static const char *const dropout[] = {"attention_dropout", "hidden_dropout", NULL};
    require_built(s, only);
    *shape = (model_shape){.family = FAMILY_LLAMA,
                           .layers = read_size(s, "num_hidden_layers", LAYER_LIMIT),
                           .width = read_size(s, "hidden_size", SIZE_LIMIT),
                           .heads = read_size(s, "num_attention_heads", SIZE_LIMIT),
                           .feed_forward = read_size(s, "intermediate_size", SIZE_LIMIT),
                           .vocabulary = read_size(s, "vocab_size", TOKEN_LIMIT),
                           .context = read_size(s, "max_position_embeddings", TOKEN_LIMIT),
                           .tied = read_flag_or(s, "tie_word_embeddings", false),
                           .norm_epsilon = read_positive_or(s, "rms_norm_eps", 1e-6),
                           .initialisation = read_positive_or(s, "initializer_range", 0.02)};
    shape->kv_heads = read_size_or(s, "num_key_value_heads", shape->heads);
    if (!has(s, "head_dim") && shape->width % shape->heads != 0)
        error_set(s->e, EXIT_MODEL, "%s: num_attention_heads: %lld does not divide hidden_size %lld", s->path,
                  (long long)shape->heads, (long long)shape->width);
    shape->head_width = read_size_or(s, "head_dim", shape->width / shape->heads);
    if (shape->heads % shape->kv_heads != 0)
        error_set(s->e, EXIT_MODEL, "%s: num_key_value_heads: %lld does not divide num_attention_heads %lld", s->path,
                  (long long)shape->kv_heads, (long long)shape->heads);
    if (shape->head_width % 2 != 0)
        error_set(s->e, EXIT_MODEL, "%s: head width %lld: expected an even number for rotary embedding", s->path,
                  (long long)shape->head_width);
    if (shape->heads * shape->head_width > SIZE_LIMIT)
        error_set(s->e, EXIT_MODEL, "%s: num_attention_heads times head_dim: found %lld, expected at most %d", s->path,
                  (long long)(shape->heads * shape->head_width), SIZE_LIMIT);
    read_rope(s, shape);
    *warning = dropout_warning(s, dropout);
}

bool huggingface_read_shape(const char *folder, model_shape *shape, char **warning, error *e) {
    *warning = NULL;
    char *path = memory_format("%s/config.json", folder);
    json_t *top = file_load_json(path, e);
    if (top != NULL) {
        settings s = {path, "", top, e};
        const char *type = json_string_value(json_object_get(top, "model_type"));
        if (type != NULL && strcmp(type, "gpt2") == 0)
            read_gpt2(&s, shape, warning);
        else if (type != NULL && strcmp(type, "llama") == 0)
            read_llama(&s, shape, warning);
        else
            refuse(&s, "model_type", "\"gpt2\" or \"llama\"");
    }
    json_decref(top);
    free(path);
    if (e->code != 0) {
        free(*warning);
        *warning = NULL;
    }
    return e->code == 0;
}
