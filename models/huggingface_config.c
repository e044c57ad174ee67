/* A model's shape into config.json. */
#include "engine/checked.h"
#include "models/huggingface.h"
#include "shard/file.h"

#include <stdlib.h>

/* The name that config.json has for a type of weights. */
static const char *type_name(dtype type) {
    check(type == DTYPE_F32 || type == DTYPE_BF16 || type == DTYPE_F16, "no model files of %s", dtype_name(type));
    return type == DTYPE_F32 ? "float32" : type == DTYPE_BF16 ? "bfloat16" : "float16";
}

static void set_text(json_t *object, const char *key, const char *value) {
    json_object_set_new(object, key, json_string(value));
}

/* transformers 4 reads torch_dtype, 5 reads dtype. */
static void set_type(json_t *config, dtype type) {
    set_text(config, "dtype", type_name(type));
    set_text(config, "torch_dtype", type_name(type));
}

static void set_size(json_t *object, const char *key, int64_t value) {
    json_object_set_new(object, key, json_integer(value));
}

static void set_real(json_t *object, const char *key, double value) {
    json_object_set_new(object, key, json_real(value));
}

static void set_flag(json_t *object, const char *key, bool value) {
    json_object_set_new(object, key, json_boolean(value));
}

static void set_architecture(json_t *config, const char *family, const char *class_name) {
    json_t *names = json_array();
    json_array_append_new(names, json_string(class_name));
    json_object_set_new(config, "architectures", names);
    set_text(config, "model_type", family);
}

static void set_gpt2(json_t *config, const model_shape *shape) {
    set_architecture(config, "gpt2", "GPT2LMHeadModel");
    set_size(config, "n_layer", shape->layers);
    set_size(config, "n_embd", shape->width);
    set_size(config, "n_head", shape->heads);
    set_size(config, "n_inner", shape->feed_forward);
    set_size(config, "n_positions", shape->context);
    set_size(config, "vocab_size", shape->vocabulary);
    set_text(config, "activation_function", "gelu_new");
    set_real(config, "layer_norm_epsilon", shape->norm_epsilon);
    set_real(config, "initializer_range", shape->initialisation);
    set_real(config, "resid_pdrop", 0);
    set_real(config, "embd_pdrop", 0);
    set_real(config, "attn_pdrop", 0);
    set_flag(config, "tie_word_embeddings", shape->tied);
}

/* Rotary settings in both spellings: rope_theta and rope_scaling for transformers 4 (null: not scaled),
 * rope_parameters for 5. */
static void set_rope(json_t *config, const model_shape *shape) {
    const rope_scaling *rope = &shape->rope;
    json_t *parameters = json_object();
    set_text(parameters, "rope_type", rope->llama3 ? "llama3" : "default");
    if (rope->llama3) {
        set_real(parameters, "factor", rope->factor);
        set_real(parameters, "low_freq_factor", rope->low_frequency_factor);
        set_real(parameters, "high_freq_factor", rope->high_frequency_factor);
        set_size(parameters, "original_max_position_embeddings", rope->original_context);
    }
    set_real(config, "rope_theta", shape->rope_theta);
    json_object_set_new(config, "rope_scaling", rope->llama3 ? json_copy(parameters) : json_null());
    set_real(parameters, "rope_theta", shape->rope_theta);
    json_object_set_new(config, "rope_parameters", parameters);
}

static void set_llama(json_t *config, const model_shape *shape) {
    set_architecture(config, "llama", "LlamaForCausalLM");
    set_size(config, "num_hidden_layers", shape->layers);
    set_size(config, "hidden_size", shape->width);
    set_size(config, "num_attention_heads", shape->heads);
    set_size(config, "num_key_value_heads", shape->kv_heads);
    set_size(config, "head_dim", shape->head_width);
    set_size(config, "intermediate_size", shape->feed_forward);
    set_size(config, "max_position_embeddings", shape->context);
    set_size(config, "vocab_size", shape->vocabulary);
    set_text(config, "hidden_act", "silu");
    set_real(config, "rms_norm_eps", shape->norm_epsilon);
    set_real(config, "initializer_range", shape->initialisation);
    set_flag(config, "attention_bias", false);
    set_flag(config, "mlp_bias", false);
    set_flag(config, "tie_word_embeddings", shape->tied);
    set_rope(config, shape);
}

static bool reals_survive(const json_t *value, int precision) {
    if (json_is_real(value)) {
        char text[64];
        snprintf(text, sizeof text, "%.*g", precision, json_real_value(value));
        return strtod(text, NULL) == json_real_value(value);
    }
    const char *key;
    json_t *item;
    json_object_foreach((json_t *)value, key, item) {
        if (!reals_survive(item, precision))
            return false;
    }
    return true; /* lists in these files hold no reals that matter */
}

/* The fewest digits that lose nothing: 1e-5 instead of 1.0000000000000001e-5. */
static char *config_text(const json_t *config) {
    int precision = 15;
    while (precision < 17 && !reals_survive(config, precision))
        precision++;
    char *text = json_dumps(config, JSON_INDENT(2) | JSON_REAL_PRECISION(precision));
    check(text != NULL, "cannot format config.json");
    char *line = memory_format("%s\n", text);
    free(text);
    return line;
}

char *huggingface_config(const model_shape *shape, dtype type) {
    json_t *config = json_object();
    if (shape->family == FAMILY_GPT2)
        set_gpt2(config, shape);
    else
        set_llama(config, shape);
    /* The families' defaults are tokens of the published vocabularies, which mean nothing here. */
    json_object_set_new(config, "bos_token_id", json_null());
    json_object_set_new(config, "eos_token_id", json_null());
    set_type(config, type);
    char *text = config_text(config);
    json_decref(config);
    return text;
}

char *huggingface_config_retyped(const char *from, dtype type, error *e) {
    char *path = memory_format("%s/config.json", from);
    json_t *config = file_load_json(path, e);
    char *text = NULL;
    if (config != NULL) {
        set_type(config, type);
        text = config_text(config);
    }
    json_decref(config);
    free(path);
    return text;
}
