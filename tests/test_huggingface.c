/* Hugging Face folders: config.json of both eras, what is refused and how it says so, weights by slices, and a writer
 * that leaves the old folder whole until the new one is. */
#include "engine/checked.h"
#include "engine/device/half.h"
#include "models/huggingface.h"
#include "shard/safetensors.h"
#include "support/folder.h"
#include "support/formula.h"
#include "support/model_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const model_shape small_gpt2 = {.family = FAMILY_GPT2,
                                       .layers = 2,
                                       .width = 6,
                                       .heads = 3,
                                       .kv_heads = 3,
                                       .head_width = 2,
                                       .feed_forward = 11,
                                       .vocabulary = 13,
                                       .context = 9,
                                       .tied = true,
                                       .norm_epsilon = 1e-5,
                                       .initialisation = 0.02};
static const model_shape small_llama = {.family = FAMILY_LLAMA,
                                        .layers = 2,
                                        .width = 7,
                                        .heads = 4,
                                        .kv_heads = 2,
                                        .head_width = 6,
                                        .feed_forward = 5,
                                        .vocabulary = 13,
                                        .context = 32,
                                        .norm_epsilon = 1e-6,
                                        .rope_theta = 500000,
                                        .initialisation = 0.02,
                                        .rope = {true, 8, 1, 4, 16}};

/* ---- config.json ---- */

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

/* ---- reading weights ---- */

static void write_model(const char *folder, const model_shape *shape, dtype type) {
    error e = {0};
    if (!model_folder_write(folder, shape, type, &e))
        fail_msg("%s", e.message);
}

static huggingface_reader *open_fine(const char *folder, const model *m, const char *expected_warning) {
    huggingface_reader *reader = NULL;
    char *warning = NULL;
    error e = {0};
    if (!huggingface_open(folder, &m->list, &reader, &warning, &e))
        fail_msg("%s", e.message);
    if (expected_warning == NULL)
        assert_null(warning);
    else
        assert_string_equal(warning, expected_warning);
    free(warning);
    return reader;
}

static void expect_open_refused(const char *folder, const model *m, const char *message) {
    huggingface_reader *reader = NULL;
    char *warning = NULL;
    error e = {0};
    assert_false(huggingface_open(folder, &m->list, &reader, &warning, &e));
    assert_null(reader);
    assert_null(warning);
    assert_string_equal(e.message, message);
    assert_int_equal(e.code, EXIT_MODEL);
}

/* Every parameter whole, and every slice of it, against the formula. */
static void check_weights(huggingface_reader *reader, const model *m, dtype type) {
    error e = {0};
    for (int32_t i = 0; i < m->list.count; i++) {
        const parameter *p = &m->list.items[i];
        int64_t elements = parameter_elements(p);
        float *expected = memory_allocate((size_t)elements, sizeof *expected);
        float *read = memory_allocate((size_t)elements, sizeof *read);
        formula_values(p, 0, elements, expected);
        for (int64_t k = 0; type == DTYPE_BF16 && k < elements; k++)
            expected[k] = float_from_bf16(bf16_from_float(expected[k]));
        for (int64_t first = 0; first <= elements; first++)
            for (int64_t count = 0; count <= elements - first; count += elements > 20 ? 7 : 1) {
                assert_true(huggingface_read(reader, i, first, count, read, &e));
                assert_memory_equal(read, expected + first, (size_t)count * sizeof *read);
            }
        free(expected);
        free(read);
    }
}

static void check_folder(const char *folder, const model_shape *shape, dtype type) {
    model *m = model_create(shape, 1);
    huggingface_reader *reader = open_fine(folder, m, NULL);
    check_weights(reader, m, type);
    huggingface_close(reader);
    model_destroy(m);
}

static void test_round_trip(void **state) {
    (void)state;
    model_shape untied = small_gpt2, tied = small_llama;
    untied.tied = false;
    tied.tied = true;
    const model_shape *shapes[] = {&small_gpt2, &untied, &small_llama, &tied};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int type = DTYPE_F32; type <= DTYPE_BF16; type += DTYPE_BF16 - DTYPE_F32) {
            write_model("model", shapes[i], (dtype)type);
            check_folder("model", shapes[i], (dtype)type);
        }
}

/* A folder with the tensors of a model under changed names and in several files: what real checkpoints look like. */
typedef struct variant {
    const char *strip;     /* prefix taken from every name, or "" */
    const char *leave_out; /* a tensor not written, or "" */
    const char *transpose; /* a matrix whose sizes are swapped, or "" */
    const char *extra[3];  /* more tensors of one element; NULL: no more */
    int files;             /* 1: model.safetensors; more: with an index, tensors dealt in turn */
} variant;

static void write_tensors(const char *path, const model *m, const variant *v, int file) {
    safetensors_tensor tensors[64] = {{0}};
    const char *names[64]; /* that the formula knows */
    int32_t count = 0;
    for (int32_t i = 0, dealt = 0; i < m->list.count; i++)
        for (int part = 0; part < m->list.items[i].part_count; part++) {
            const parameter *p = &m->list.items[i];
            const char *name = p->parts[part].name;
            if (dealt++ % v->files != file || strcmp(name, v->leave_out) == 0)
                continue;
            bool swap = strcmp(name, v->transpose) == 0;
            names[count] = name;
            tensors[count++] = (safetensors_tensor){
                strncmp(name, v->strip, strlen(v->strip)) == 0 ? name + strlen(v->strip) : name,
                p->dimensions,
                {swap ? p->shape[1] : p->parts[part].rows, swap ? p->parts[part].rows : p->shape[1]}};
        }
    for (int k = 0; file == 0 && k < 3 && v->extra[k] != NULL; k++) {
        names[count] = v->extra[k];
        tensors[count++] = (safetensors_tensor){v->extra[k], 1, {1}};
    }
    error e = {0};
    safetensors_writer *writer = NULL;
    assert_true(safetensors_create(path, tensors, count, DTYPE_F32, &writer, &e));
    for (int32_t t = 0; t < count; t++) {
        int64_t elements = tensors[t].shape[0] * (tensors[t].dimensions > 1 ? tensors[t].shape[1] : 1);
        for (int64_t k = 0; k < elements; k++) {
            float value = formula_weight(names[t], tensors[t].dimensions, k);
            assert_true(safetensors_write(writer, t, k, 1, &value, &e));
        }
    }
    assert_true(safetensors_finish(writer, &e));
}

static void add_to_index(FILE *index, const char *path, const char *file, bool *first) {
    error e = {0};
    safetensors_file *opened = NULL;
    assert_true(safetensors_open(path, &opened, &e));
    for (int32_t i = 0; i < opened->count; i++) {
        fprintf(index, "%s\"%s\": \"%s\"", *first ? "" : ", ", opened->entries[i].name, file);
        *first = false;
    }
    safetensors_close(opened);
}

static void write_variant(const char *folder, const model_shape *shape, const variant *v) {
    model *m = model_create(shape, 1);
    assert_int_equal(mkdir(folder, 0777), 0);
    char *index_path = memory_format("%s/model.safetensors.index.json", folder);
    FILE *index = v->files > 1 ? fopen(index_path, "w") : NULL;
    bool first = true;
    if (index != NULL)
        fputs("{\"metadata\": {}, \"weight_map\": {", index);
    for (int file = 0; file < v->files; file++) {
        char *name = v->files == 1 ? memory_copy_string("model.safetensors")
                                   : memory_format("model-%05d-of-%05d.safetensors", file + 1, v->files);
        char *path = memory_format("%s/%s", folder, name);
        write_tensors(path, m, v, file);
        if (index != NULL)
            add_to_index(index, path, name, &first);
        free(name);
        free(path);
    }
    if (index != NULL) {
        fputs("}}", index);
        fclose(index);
    }
    free(index_path);
    model_destroy(m);
}

static void check_variant(const model_shape *shape, const variant *v, const char *warning) {
    write_variant("variant", shape, v);
    model *m = model_create(shape, 1);
    huggingface_reader *reader = open_fine("variant", m, warning);
    check_weights(reader, m, DTYPE_F32);
    huggingface_close(reader);
    model_destroy(m);
    assert_int_equal(system("rm -r variant"), 0);
}

static void expect_variant_refused(const model_shape *shape, const variant *v, const char *message) {
    write_variant("variant", shape, v);
    model *m = model_create(shape, 1);
    expect_open_refused("variant", m, message);
    model_destroy(m);
    assert_int_equal(system("rm -r variant"), 0);
}

static void test_names_and_files(void **state) {
    (void)state;
    check_variant(&small_gpt2, &(variant){"transformer.", "", "", {0}, 1}, NULL);
    check_variant(&small_gpt2, &(variant){"transformer.", "", "", {0}, 3}, NULL);
    check_variant(&small_llama, &(variant){"", "", "", {0}, 5}, NULL);
    /* What transformers and older checkpoints add without adding anything. */
    check_variant(&small_gpt2,
                  &(variant){"", "", "", {"transformer.h.0.attn.bias", "h.1.attn.masked_bias", "lm_head.weight"}, 1},
                  NULL);
    check_variant(&small_llama, &(variant){"", "", "", {"model.layers.0.self_attn.rotary_emb.inv_freq"}, 1}, NULL);
    check_variant(&small_gpt2, &(variant){"", "", "", {"score.weight", "value.weight"}, 1},
                  "variant/model.safetensors: 2 tensors not of this model ignored, the first is score.weight");
    check_variant(&small_gpt2, &(variant){"", "", "", {"transformer.h.2.ln_1.bias"}, 2},
                  "variant/model.safetensors.index.json: 1 tensor not of this model ignored, the first is "
                  "transformer.h.2.ln_1.bias");
}

static void test_missing_and_misshapen(void **state) {
    (void)state;
    expect_variant_refused(&small_gpt2, &(variant){"", "transformer.ln_f.bias", "", {0}, 1},
                           "variant/model.safetensors: no tensor transformer.ln_f.bias");
    expect_variant_refused(&small_llama, &(variant){"", "model.layers.1.self_attn.k_proj.weight", "", {0}, 2},
                           "variant/model.safetensors.index.json: no tensor model.layers.1.self_attn.k_proj.weight");
    expect_variant_refused(&small_llama, &(variant){"", "lm_head.weight", "", {0}, 1},
                           "variant/model.safetensors: no tensor lm_head.weight");
    expect_variant_refused(&small_gpt2, &(variant){"", "", "transformer.h.1.mlp.c_fc.weight", {0}, 1},
                           "variant/model.safetensors: tensor transformer.h.1.mlp.c_fc.weight: shape [11, 6]; "
                           "expected [6, 11]");
    expect_variant_refused(&small_llama, &(variant){"", "model.norm.weight", "", {"model.norm.weight"}, 1},
                           "variant/model.safetensors: tensor model.norm.weight: shape [1]; expected [7]");
}

static void test_wrong_type(void **state) {
    (void)state;
    write_model("model", &small_gpt2, DTYPE_F32);
    size_t bytes = 0;
    char *contents = test_file_read("model/model.safetensors", &bytes);
    char *type = memmem(contents, bytes, "\"F32\"", 5); /* of the first tensor */
    assert_non_null(type);
    memcpy(type, "\"I32\"", 5);
    test_file_write("model/model.safetensors", contents, bytes);
    free(contents);
    model *m = model_create(&small_gpt2, 1);
    expect_open_refused("model", m,
                        "model/model.safetensors: tensor transformer.wte.weight: dtype I32; expected F32, "
                        "BF16, F16 or F64");
    model_destroy(m);
}

static void expect_index_refused(const model *m, const char *index, const char *message) {
    test_text_write("model/model.safetensors.index.json", index);
    expect_open_refused("model", m, message);
}

static void test_index_mistakes(void **state) {
    (void)state;
    model *m = model_create(&small_gpt2, 1);
    expect_open_refused("absent", m, "absent: found neither model.safetensors nor model.safetensors.index.json");
    write_model("model", &small_gpt2, DTYPE_F32);
    assert_int_equal(rename("model/model.safetensors", "model/a.safetensors"), 0);
    expect_index_refused(m, "{",
                         "model/model.safetensors.index.json:1: not valid JSON: string or '}' expected near "
                         "end of file");
    expect_index_refused(m, "{\"weight_map\": {\"a\": \"x\", \"a\": \"y\"}}",
                         "model/model.safetensors.index.json:1: not valid JSON: duplicate object key near '\"a\"'");
    expect_index_refused(m, "{}",
                         "model/model.safetensors.index.json: expected \"weight_map\" to be an object of "
                         "tensor names and file names");
    expect_index_refused(m, "{\"weight_map\": {\"transformer.wte.weight\": 1}}",
                         "model/model.safetensors.index.json: weight_map: tensor transformer.wte.weight: expected a "
                         "file name");
    expect_index_refused(m, "{\"weight_map\": {\"transformer.wte.weight\": \"../model/a.safetensors\"}}",
                         "model/model.safetensors.index.json: weight_map: \"../model/a.safetensors\": expected the "
                         "name of a file in the same folder");
    expect_index_refused(m, "{\"weight_map\": {\"transformer.wte.weight\": \"b.safetensors\"}}",
                         "model/b.safetensors: cannot open: No such file or directory");
    expect_index_refused(m, "{\"weight_map\": {\"lm_head.weight\": \"a.safetensors\"}}",
                         "model/a.safetensors: no tensor lm_head.weight, which model/model.safetensors.index.json "
                         "places there");
    model_destroy(m);
}

/* ---- writing ---- */

static void expect_text(const char *path, const char *text) {
    size_t count = 0;
    char *found = test_file_read(path, &count);
    assert_string_equal(found, text);
    free(found);
}

static void expect_absent(const char *path) {
    assert_int_not_equal(access(path, F_OK), 0);
}

/* Opens a writer and writes some of it. */
static huggingface_writer *begin_writer(const char *folder, const model *m, const char *from) {
    huggingface_writer *writer = NULL;
    error e = {0};
    if (!huggingface_writer_open(folder, &m->shape, &m->list, DTYPE_BF16, from, &writer, &e))
        fail_msg("%s", e.message);
    float value = 1;
    assert_true(huggingface_write(writer, 0, 0, 1, &value, &e));
    return writer;
}

/* A writer that is given up or killed leaves the old folder as it was; the next one clears what is left. */
static void test_interrupted_writer(void **state) {
    (void)state;
    model *m = model_create(&small_llama, 1);
    write_model("model", &small_llama, DTYPE_F32);
    huggingface_writer_abandon(begin_writer("model", m, NULL));
    expect_absent("model.incomplete");
    check_folder("model", &small_llama, DTYPE_F32);

    pid_t child = fork();
    if (child == 0) {
        begin_writer("model", m, NULL);
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(access("model.incomplete", F_OK), 0);
    check_folder("model", &small_llama, DTYPE_F32);
    write_model("model", &small_llama, DTYPE_BF16);
    check_folder("model", &small_llama, DTYPE_BF16);
    expect_absent("model.incomplete");
    expect_absent("model.replaced");
    model_destroy(m);
}

/* Killed between the two renames of a file system that cannot exchange: the older folder comes back. */
static void test_interrupted_replacement(void **state) {
    (void)state;
    model *m = model_create(&small_llama, 1);
    write_model("model.replaced", &small_llama, DTYPE_F32);
    huggingface_writer_abandon(begin_writer("model", m, NULL));
    check_folder("model", &small_llama, DTYPE_F32);
    expect_absent("model.replaced");
    model_destroy(m);
}

static void test_link_survives(void **state) {
    (void)state;
    assert_int_equal(mkdir("disk", 0777), 0);
    write_model("disk/model", &small_llama, DTYPE_F32);
    assert_int_equal(symlink("disk/model", "model"), 0);
    write_model("model/", &small_llama, DTYPE_BF16);
    struct stat status;
    assert_int_equal(lstat("model", &status), 0);
    assert_true(S_ISLNK(status.st_mode));
    check_folder("disk/model", &small_llama, DTYPE_BF16);
}

/* config.json keeps what this program does not know, and says the type that was written. */
static void test_carried_over(void **state) {
    (void)state;
    write_model("source", &small_llama, DTYPE_F32);
    test_text_write("source/tokenizer.json", "{\"version\": \"1.0\"}");
    test_text_write("source/generation_config.json", "{\"eos_token_id\": 2}");
    test_text_write("source/README.md", "about the source");
    test_text_write("source/config.json", "{" LLAMA ", \"rms_norm_eps\": 1e-05, \"eos_token_id\": 2, "
                                          "\"torch_dtype\": \"float32\"}");
    model *m = model_create(&small_llama, 1);
    huggingface_writer *writer = NULL;
    error e = {0};
    assert_true(huggingface_writer_open("model", &small_llama, &m->list, DTYPE_BF16, "source", &writer, &e));
    expect_absent("model");
    for (int32_t i = 0; i < m->list.count; i++)
        for (int64_t k = parameter_elements(&m->list.items[i]) - 1; k >= 0; k--) { /* backwards, one by one */
            float value;
            formula_values(&m->list.items[i], k, 1, &value);
            assert_true(huggingface_write(writer, i, k, 1, &value, &e));
        }
    assert_true(huggingface_writer_finish(writer, &e));
    check_folder("model", &small_llama, DTYPE_BF16);
    expect_text("model/tokenizer.json", "{\"version\": \"1.0\"}");
    expect_text("model/generation_config.json", "{\"eos_token_id\": 2}");
    expect_absent("model/README.md");
    expect_text("model/config.json", "{\n  \"model_type\": \"llama\",\n  \"num_hidden_layers\": 2,\n"
                                     "  \"hidden_size\": 24,\n  \"num_attention_heads\": 4,\n"
                                     "  \"intermediate_size\": 5,\n  \"max_position_embeddings\": 32,\n"
                                     "  \"vocab_size\": 13,\n  \"rms_norm_eps\": 1e-5,\n  \"eos_token_id\": 2,\n"
                                     "  \"torch_dtype\": \"bfloat16\",\n  \"dtype\": \"bfloat16\"\n}\n");
    model_destroy(m);
}

static void expect_writer_refused(const model *m, const char *folder, const char *from, const char *message) {
    huggingface_writer *writer = NULL;
    error e = {0};
    assert_false(huggingface_writer_open(folder, &m->shape, &m->list, DTYPE_F32, from, &writer, &e));
    assert_null(writer);
    assert_string_equal(e.message, message);
    assert_int_equal(e.code, EXIT_MODEL);
}

static void test_writer_mistakes(void **state) {
    (void)state;
    model *m = model_create(&small_gpt2, 1);
    expect_writer_refused(m, "absent/model", NULL, "absent/model.incomplete: cannot create: No such file or directory");
    expect_writer_refused(m, "model", "absent", "absent/config.json: cannot open: No such file or directory");
    expect_absent("model.incomplete");
    test_text_write("file", "");
    expect_writer_refused(m, "file", NULL, "file: expected a folder; move the file away");
    assert_int_equal(mkdir("mine", 0777) + mkdir("mine/photos", 0777), 0);
    expect_writer_refused(m, "mine/", NULL,
                          "mine: holds a folder, photos, that replacing it would remove; move it away");
    model_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_IN_FOLDER(test_gpt2_config),
        TEST_IN_FOLDER(test_llama_config),
        TEST_IN_FOLDER(test_rope_of_both_eras),
        TEST_IN_FOLDER(test_settings_not_built),
        TEST_IN_FOLDER(test_config_mistakes),
        TEST_IN_FOLDER(test_config_round_trip),
        TEST_IN_FOLDER(test_round_trip),
        TEST_IN_FOLDER(test_names_and_files),
        TEST_IN_FOLDER(test_missing_and_misshapen),
        TEST_IN_FOLDER(test_wrong_type),
        TEST_IN_FOLDER(test_index_mistakes),
        TEST_IN_FOLDER(test_interrupted_writer),
        TEST_IN_FOLDER(test_interrupted_replacement),
        TEST_IN_FOLDER(test_link_survives),
        TEST_IN_FOLDER(test_carried_over),
        TEST_IN_FOLDER(test_writer_mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
