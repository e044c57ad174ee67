/* config.json of Hugging Face folders: both eras, what is refused and how, what is written reads the same. */
#include "engine/checked.h"
#include "support/folder.h"
#include "support/small_models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define GPT2                                                                                                           \
    "\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 6, \"n_head\": 3, \"n_positions\": 9, "                     \
    "\"vocab_size\": 13"
#define LLAMA                                                                                                          \
    "\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 24, "                                       \
    "\"num_attention_heads\": 4, \"intermediate_size\": 5, \"max_position_embeddings\": 32, "                          \
    "\"vocab_size\": 13"
#define LLAMA3                                                                                                         \
    "\"factor\": 8, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "                                             \
    "\"original_max_position_embeddings\": 16"

static model_shape read_config(const char *config, const char *expected_warning) {
    model_shape shape = {0};
    char *warning = NULL;
    error e = {0};
    test_text_write("config.json", config);
    if (!huggingface_read_shape(".", &shape, &warning, &e))
        fail_msg("%s", e.message);
    if (expected_warning == NULL)
        assert_null(warning);
    else
        assert_string_equal(warning, expected_warning);
    free(warning);
    return shape;
}

static void expect_config_refused(const char *config, const char *message) {
    model_shape shape;
    char *warning = NULL;
    error e = {0};
    test_text_write("config.json", config);
    assert_false(huggingface_read_shape(".", &shape, &warning, &e));
    assert_null(warning);
    assert_string_equal(e.message, message);
    assert_int_equal(e.code, EXIT_MODEL);
}

static void test_gpt2_config(void **state) {
    (void)state;
    model_shape s = read_config("{" GPT2 "}", NULL);
    assert_int_equal(s.family, FAMILY_GPT2);
    assert_int_equal(s.layers, 2);
    assert_int_equal(s.width, 6);
    assert_int_equal(s.heads, 3);
    assert_int_equal(s.kv_heads, 3);
    assert_int_equal(s.head_width, 2);
    assert_int_equal(s.feed_forward, 24);
    assert_int_equal(s.vocabulary, 13);
    assert_int_equal(s.context, 9);
    assert_true(s.tied);
    assert_true(s.norm_epsilon == 1e-5 && s.initialisation == 0.02);
    s = read_config("{" GPT2 ", \"n_inner\": 11, \"tie_word_embeddings\": false, \"layer_norm_epsilon\": 1e-6, "
                    "\"activation_function\": \"gelu_new\", \"resid_pdrop\": 0.1, \"attn_pdrop\": 0.25, "
                    "\"embd_pdrop\": 0}",
                    "./config.json: dropout is ignored: resid_pdrop 0.1, attn_pdrop 0.25");
    assert_int_equal(s.feed_forward, 11);
    assert_false(s.tied);
    assert_true(s.norm_epsilon == 1e-6);
}

static void test_llama_config(void **state) {
    (void)state;
    model_shape s = read_config("{" LLAMA "}", NULL);
    assert_int_equal(s.family, FAMILY_LLAMA);
    assert_int_equal(s.kv_heads, 4);
    assert_int_equal(s.head_width, 6);
    assert_int_equal(s.context, 32);
    assert_false(s.tied);
    assert_true(s.norm_epsilon == 1e-6 && s.rope_theta == 10000 && !s.rope.llama3);
    s = read_config("{" LLAMA ", \"num_key_value_heads\": 2, \"head_dim\": 10, \"tie_word_embeddings\": true, "
                    "\"rms_norm_eps\": 1e-5, \"sliding_window\": null, \"attention_bias\": false, "
                    "\"mlp_bias\": false, \"hidden_act\": \"silu\", \"attention_dropout\": 0.0}",
                    NULL);
    assert_int_equal(s.kv_heads, 2);
    assert_int_equal(s.head_width, 10);
    assert_true(s.tied && s.norm_epsilon == 1e-5);
}

static void check_llama3(const model_shape *s) {
    assert_true(s->rope.llama3 && s->rope.factor == 8 && s->rope.low_frequency_factor == 1 &&
                s->rope.high_frequency_factor == 4);
    assert_int_equal(s->rope.original_context, 16);
    assert_true(s->rope_theta == 500000);
}

static void test_rope_of_both_eras(void **state) {
    (void)state;
    model_shape s = read_config("{" LLAMA ", \"rope_theta\": 500000, \"rope_scaling\": null}", NULL);
    assert_true(s.rope_theta == 500000 && !s.rope.llama3);
    s = read_config("{" LLAMA ", \"rope_parameters\": {\"rope_theta\": 500000.0, \"rope_type\": \"default\"}}", NULL);
    assert_true(s.rope_theta == 500000 && !s.rope.llama3);
    s = read_config("{" LLAMA ", \"rope_theta\": 500000, \"rope_scaling\": {\"rope_type\": \"llama3\", " LLAMA3 "}}",
                    NULL);
    check_llama3(&s);
    s = read_config("{" LLAMA ", \"rope_theta\": 500000, \"rope_scaling\": {\"type\": \"llama3\", " LLAMA3 "}}", NULL);
    check_llama3(&s);
    s = read_config("{" LLAMA ", \"rope_parameters\": {\"rope_theta\": 5e5, \"rope_type\": \"llama3\", " LLAMA3 "}}",
                    NULL);
    check_llama3(&s);
    expect_config_refused("{" LLAMA ", \"rope_theta\": 10000, \"rope_parameters\": {\"rope_theta\": 500000}}",
                          "./config.json: rope_theta 10000 and rope_parameters.rope_theta 500000 disagree");
    expect_config_refused("{" LLAMA ", \"rope_parameters\": {\"rope_type\": \"default\"}, "
                          "\"rope_scaling\": {\"rope_type\": \"llama3\", " LLAMA3 "}}",
                          "./config.json: rope_scaling and rope_parameters disagree");
    expect_config_refused("{" LLAMA ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.0}}",
                          "./config.json: rope_scaling.rope_type: found \"linear\"; only \"default\" and \"llama3\" "
                          "are built");
    expect_config_refused("{" LLAMA ", \"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 2.0}}",
                          "./config.json: rope_parameters.rope_type: found \"yarn\"; only \"default\" and \"llama3\" "
                          "are built");
    expect_config_refused("{" LLAMA ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8}}",
                          "./config.json: rope_scaling.low_freq_factor: missing; expected a positive number");
    expect_config_refused("{" LLAMA ", \"rope_scaling\": 2}",
                          "./config.json: rope_scaling: found 2, expected an object or null");
}

/* Each of these changes what the model computes. */
static void test_settings_not_built(void **state) {
    (void)state;
    static const struct {
        const char *family, *key, *value, *only;
    } settings[] = {{"{" GPT2, "activation_function", "\"gelu\"", "\"gelu_new\""},
                    {"{" GPT2, "scale_attn_weights", "false", "true"},
                    {"{" GPT2, "scale_attn_by_inverse_layer_idx", "true", "false"},
                    {"{" GPT2, "reorder_and_upcast_attn", "true", "false"},
                    {"{" GPT2, "add_cross_attention", "true", "false"},
                    {"{" GPT2, "quantization_config", "{\"bits\":4}", "null"},
                    {"{" LLAMA, "hidden_act", "\"gelu\"", "\"silu\""},
                    {"{" LLAMA, "attention_bias", "true", "false"},
                    {"{" LLAMA, "mlp_bias", "true", "false"},
                    {"{" LLAMA, "sliding_window", "4096", "null"},
                    {"{" LLAMA, "partial_rotary_factor", "0.5", "1"},
                    {"{" LLAMA, "rope_interleaved", "true", "false"},
                    {"{" LLAMA, "quantization_config", "{\"bits\":4}", "null"}};
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        char *config = memory_format("%s, \"%s\": %s}", settings[i].family, settings[i].key, settings[i].value);
        char *message = memory_format("./config.json: %s: found %s; this changes the mathematics and only %s is built",
                                      settings[i].key, settings[i].value, settings[i].only);
        expect_config_refused(config, message);
        free(config);
        free(message);
    }
}

static void test_config_mistakes(void **state) {
    (void)state;
    model_shape shape;
    char *warning = NULL;
    error e = {0};
    assert_false(huggingface_read_shape("absent", &shape, &warning, &e));
    assert_string_equal(e.message, "absent/config.json: cannot open: No such file or directory");
    expect_config_refused("{\n\"model_type\": \"gpt2\",\n", "./config.json:3: not valid JSON: string or '}' expected "
                                                            "near end of file");
    expect_config_refused("[]", "./config.json: expected a JSON object");
    expect_config_refused("{\"vocab_size\": 1, \"vocab_size\": 2}",
                          "./config.json:1: not valid JSON: duplicate object key near '\"vocab_size\"'");
    expect_config_refused("{}", "./config.json: model_type: missing; expected \"gpt2\" or \"llama\"");
    expect_config_refused("{\"model_type\": \"mistral\"}",
                          "./config.json: model_type: found \"mistral\", expected \"gpt2\" or \"llama\"");
    expect_config_refused("{\"model_type\": \"gpt2\"}",
                          "./config.json: n_layer: missing; expected a whole number from 1 to 4096");
    expect_config_refused("{\"model_type\": \"gpt2\", \"n_layer\": 2.5}",
                          "./config.json: n_layer: found 2.5, expected a whole number from 1 to 4096");
    expect_config_refused("{\"model_type\": \"gpt2\", \"n_layer\": 0}",
                          "./config.json: n_layer: found 0, expected a whole number from 1 to 4096");
    expect_config_refused("{\"model_type\": \"gpt2\", \"n_layer\": 1, \"n_embd\": 1152921504606846976}",
                          "./config.json: n_embd: found 1152921504606846976, expected a whole number from 1 to "
                          "1048576");
    expect_config_refused("{" GPT2 ", \"layer_norm_epsilon\": \"small\"}",
                          "./config.json: layer_norm_epsilon: found \"small\", expected a positive number");
    expect_config_refused("{" GPT2 ", \"tie_word_embeddings\": 1}",
                          "./config.json: tie_word_embeddings: found 1, expected true or false");
    expect_config_refused("{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 7, \"n_head\": 3, "
                          "\"n_positions\": 9, \"vocab_size\": 13}",
                          "./config.json: n_head: 3 does not divide n_embd 7");
    expect_config_refused("{" LLAMA ", \"num_key_value_heads\": 3}",
                          "./config.json: num_key_value_heads: 3 does not divide num_attention_heads 4");
    expect_config_refused("{" LLAMA ", \"head_dim\": 5}",
                          "./config.json: head width 5: expected an even number for rotary embedding");
}

static void check_config_round_trip(const model_shape *shape) {
    char *text = huggingface_config(shape, DTYPE_F32);
    model_shape read = read_config(text, NULL);
    assert_int_equal(read.family, shape->family);
    assert_int_equal(read.layers, shape->layers);
    assert_int_equal(read.width, shape->width);
    assert_int_equal(read.heads, shape->heads);
    assert_int_equal(read.kv_heads, shape->kv_heads);
    assert_int_equal(read.head_width, shape->head_width);
    assert_int_equal(read.feed_forward, shape->feed_forward);
    assert_int_equal(read.vocabulary, shape->vocabulary);
    assert_int_equal(read.context, shape->context);
    assert_int_equal(read.tied, shape->tied);
    assert_true(read.norm_epsilon == shape->norm_epsilon && read.rope_theta == shape->rope_theta &&
                read.initialisation == shape->initialisation);
    assert_true(read.rope.llama3 == shape->rope.llama3 && read.rope.factor == shape->rope.factor &&
                read.rope.low_frequency_factor == shape->rope.low_frequency_factor &&
                read.rope.high_frequency_factor == shape->rope.high_frequency_factor &&
                read.rope.original_context == shape->rope.original_context);
    free(text);
}

static void test_config_round_trip(void **state) {
    (void)state;
    check_config_round_trip(&small_gpt2);
    check_config_round_trip(&small_llama);
    model_shape plain = small_llama;
    plain.rope = (rope_scaling){0};
    plain.tied = true;
    plain.norm_epsilon = 1.0 / 3; /* needs 17 digits */
    check_config_round_trip(&plain);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_IN_FOLDER(test_gpt2_config),       TEST_IN_FOLDER(test_llama_config),
        TEST_IN_FOLDER(test_rope_of_both_eras), TEST_IN_FOLDER(test_settings_not_built),
        TEST_IN_FOLDER(test_config_mistakes),   TEST_IN_FOLDER(test_config_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
