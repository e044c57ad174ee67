/* A model's shape into config.json. */
#include "engine/checked.h"
#include "models/huggingface.h"
#include "shard/file.h"

#include <stdlib.h>
#include <string.h>

/* The name that config.json has for a type of weights. */
static const char *type_name(dtype type) {
    check(type == DTYPE_F32 || type == DTYPE_BF16, "no model files of %s", dtype_name(type));
    return type == DTYPE_F32 ? "float32" : "bfloat16";
}

/* transformers 4 reads torch_dtype, 5 reads dtype. */
static void set_type(json_t *config, dtype type) {
    json_object_set_new(config, "dtype", json_string(type_name(type)));
    json_object_set_new(config, "torch_dtype", json_string(type_name(type)));
}

static json_t *gpt2_config(const model_shape *shape) {
    return json_pack("{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:f, s:f, s:f, s:f, s:b}",
                     "architectures", "GPT2LMHeadModel", "model_type", "gpt2",
                     "n_layer", (json_int_t)shape->layers, "n_embd", (json_int_t)shape->width,
                     "n_head", (json_int_t)shape->heads, "n_inner", (json_int_t)shape->feed_forward,
                     "n_positions", (json_int_t)shape->context, "n_ctx", (json_int_t)shape->context,
                     "vocab_size", (json_int_t)shape->vocabulary, "activation_function", "gelu_new",
                     "layer_norm_epsilon", shape->norm_epsilon, "initializer_range", shape->initialisation,
                     "resid_pdrop", 0.0, "embd_pdrop", 0.0, "attn_pdrop", 0.0, "tie_word_embeddings", shape->tied);
}

static json_t *llama_config(const model_shape *shape) {
    return json_pack("{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:f, s:b, s:b, s:b}",
                     "architectures", "LlamaForCausalLM", "model_type", "llama",
                     "num_hidden_layers", (json_int_t)shape->layers, "hidden_size", (json_int_t)shape->width,
                     "num_attention_heads", (json_int_t)shape->heads,
                     "num_key_value_heads", (json_int_t)shape->kv_heads, "head_dim", (json_int_t)shape->head_width,
                     "intermediate_size", (json_int_t)shape->feed_forward,
                     "max_position_embeddings", (json_int_t)shape->context,
                     "vocab_size", (json_int_t)shape->vocabulary, "hidden_act", "silu",
                     "rms_norm_eps", shape->norm_epsilon, "initializer_range", shape->initialisation,
                     "attention_bias", 0, "mlp_bias", 0, "tie_word_embeddings", shape->tied);
}

/* Rotary settings in both spellings: rope_theta and rope_scaling for transformers 4, rope_parameters for 5. A default
 * rope_scaling is null in 4. */
static void set_rope(json_t *config, const model_shape *shape) {
    const rope_scaling *rope = &shape->rope;
    json_t *scaling = json_null();
    if (rope->llama3)
        scaling = json_pack("{s:s, s:f, s:f, s:f, s:I}", "rope_type", "llama3", "factor", rope->factor,
                            "low_freq_factor", rope->low_frequency_factor,
                            "high_freq_factor", rope->high_frequency_factor,
                            "original_max_position_embeddings", (json_int_t)rope->original_context);
    json_t *parameters = rope->llama3 ? json_copy(scaling) : json_pack("{s:s}", "rope_type", "default");
    json_object_set_new(parameters, "rope_theta", json_real(shape->rope_theta));
    json_object_set_new(config, "rope_theta", json_real(shape->rope_theta));
    json_object_set_new(config, "rope_scaling", scaling);
    json_object_set_new(config, "rope_parameters", parameters);
}

static bool reals_survive(const json_t *value, int precision) {
    if (json_is_real(value)) {
        char text[64];
        snprintf(text, sizeof text, "%.*g", precision, json_real_value(value));
        return strtod(text, NULL) == json_real_value(value);
    }
    const char *key;
    json_t *item;
    json_object_foreach((json_t *)value, key, item)
        if (!reals_survive(item, precision))
            return false;
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
    json_t *config = shape->family == FAMILY_GPT2 ? gpt2_config(shape) : llama_config(shape);
    check(config != NULL, "cannot make config.json");
    if (shape->family == FAMILY_LLAMA)
        set_rope(config, shape);
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
