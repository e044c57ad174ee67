/* Where the model's shape comes from: keys, presets, a folder, the tokenizer; every mistake by its exact message. */
#include "engine/checked.h"
#include "launch/presets.h"
#include "support/folder.h"
#include "support/small_config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char run[] = "[data]\ntrain = text.txt\n[train]\nsteps = 3\nglobal_batch = 8\n"; /* five lines */

static void shape_of_llama_by_default(void **state) {
    (void)state;
    config *c = small_config_read(small_config, "", NULL);
    model_shape s = small_config_resolve(c, NULL, 256);
    assert_int_equal(s.family, FAMILY_LLAMA);
    assert_int_equal(s.layers, 2);
    assert_int_equal(s.width, 64);
    assert_int_equal(s.heads, 8);
    assert_int_equal(s.kv_heads, 8);
    assert_int_equal(s.head_width, 8);
    assert_int_equal(s.feed_forward, 192); /* 8/3 * 64 = 170.7 */
    assert_int_equal(s.vocabulary, 256);
    assert_int_equal(s.context, 32);
    assert_false(s.tied);
    assert_false(s.rope.llama3);
    assert_true(s.norm_epsilon == 1e-5 && s.rope_theta == 10000 && s.initialisation == 0.02);
    assert_int_equal(c->train.sequence, 32);
    assert_int_equal(c->model.feed_forward, 192);
    assert_int_equal(c->model.tied, CONFIG_NO);
    config_free(c);
}

static void feed_forward_is_rounded_up(void **state) {
    (void)state;
    static const int64_t widths[][2] = {{24, 64}, {32, 128}, {48, 128}, {768, 2048}, {4096, 10944}};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        char *argument = memory_format("model.width=%lld", (long long)widths[i][0]);
        config *c = small_config_read(small_config, "", (const char *const[]){argument, "model.heads=2", NULL});
        assert_int_equal(small_config_resolve(c, NULL, 256).feed_forward, widths[i][1]);
        config_free(c);
        free(argument);
    }
}

static void shape_of_gpt2_by_default(void **state) {
    (void)state;
    config *c = small_config_read(small_config, "[shard]\n",
                                  (const char *const[]){"model.family=gpt2", "model.vocabulary=97", NULL});
    model_shape s = small_config_resolve(c, NULL, 256);
    assert_int_equal(s.family, FAMILY_GPT2);
    assert_int_equal(s.kv_heads, 8);
    assert_int_equal(s.head_width, 8);
    assert_int_equal(s.feed_forward, 256);
    assert_int_equal(s.vocabulary, 97);
    assert_true(s.tied);
    config_free(c);
}

static void explicit_keys_win_over_a_preset(void **state) {
    (void)state;
    config *c = small_config_read(run,
                                  "[model]\npreset = llama-3.2-1b\nvocabulary = 32000\nlayers = 2\ntied = no\n"
                                  "rope_theta = 1000\n",
                                  NULL);
    model_shape s = small_config_resolve(c, NULL, 256), p = *preset_shape(4);
    assert_int_equal(s.vocabulary, 32000);
    assert_int_equal(s.layers, 2);
    assert_false(s.tied);
    assert_true(s.rope_theta == 1000);
    assert_int_equal(s.width, p.width);
    assert_int_equal(s.head_width, 64);
    assert_int_equal(s.feed_forward, 8192);
    assert_memory_equal(&s.rope, &p.rope, sizeof s.rope);
    assert_int_equal(c->train.sequence, 131072);
    config_free(c);

    c = small_config_read(run, "[model]\npreset = gpt2\nwidth = 96\nheads = 6\n", NULL);
    s = small_config_resolve(c, NULL, 256);
    assert_int_equal(s.kv_heads, 6);
    assert_int_equal(s.head_width, 16);
    assert_int_equal(s.feed_forward, 3072);
    assert_int_equal(s.vocabulary, 50257);
    config_free(c);
}

static const model_shape in_folder = {.family = FAMILY_LLAMA,
                                      .layers = 3,
                                      .width = 40,
                                      .heads = 6,
                                      .kv_heads = 2,
                                      .head_width = 10,
                                      .feed_forward = 100,
                                      .vocabulary = 97,
                                      .context = 128,
                                      .tied = true,
                                      .norm_epsilon = 1e-6,
                                      .rope_theta = 5000,
                                      .initialisation = 0.01};

static void shape_of_a_model_folder(void **state) {
    (void)state;
    config *c = small_config_read(run, "[model]\nfrom = model\nlayers = 3\nfamily = llama\ntied = yes\n", NULL);
    model_shape s = small_config_resolve(c, &in_folder, 256);
    assert_int_equal(s.layers, 3);
    assert_int_equal(s.width, 40);
    assert_int_equal(s.heads, 6);
    assert_int_equal(s.kv_heads, 2);
    assert_int_equal(s.head_width, 10);
    assert_int_equal(s.feed_forward, 100);
    assert_int_equal(s.vocabulary, 97);
    assert_int_equal(s.context, 128);
    assert_true(s.tied);
    assert_true(s.norm_epsilon == 1e-6 && s.rope_theta == 5000 && s.initialisation == 0.01);
    config_free(c);
}

typedef struct bad_model {
    const char *more; /* lines from 6 */
    bool from;        /* the model folder above is there */
    const char *message;
} bad_model;

#define GPT2_LINES "[model]\nfamily = gpt2\nlayers = 1\nwidth = 64\ncontext = 8\n" /* lines 6 to 10 */
#define LLAMA_LINES "[model]\nfamily = llama\nlayers = 1\nwidth = 64\ncontext = 8\n"
static const bad_model bad_models[] = {
    {"", false, "config.ini: [model] family: required key is missing; give gpt2 or llama, or preset or from"},
    {"[model]\nfamily = gpt2\n", false,
     "config.ini: [model] layers: required key is missing; give it, or preset or from"},
    {"[model]\nfamily = gpt2\nlayers = 1\n", false,
     "config.ini: [model] width: required key is missing; give it, or preset or from"},
    {GPT2_LINES, false, "config.ini: [model] heads: required key is missing; give it, or preset or from"},
    {"[model]\nfamily = gpt2\nlayers = 1\nwidth = 8\nheads = 2\n", false,
     "config.ini: [model] context: required key is missing; give it, or preset or from"},
    {GPT2_LINES "heads = 7\n", false, "config.ini:11: [model] heads = 7: does not divide width 64; 4 and 8 would do"},
    {GPT2_LINES "heads = 100\n", false, "config.ini:11: [model] heads = 100: does not divide width 64; 64 would do"},
    {GPT2_LINES "heads = 8\nkv_heads = 4\n", false,
     "config.ini:12: [model] kv_heads = 4: gpt2 has as many as heads, 8; drop the key"},
    {GPT2_LINES "heads = 8\nhead_width = 4\n", false,
     "config.ini:12: [model] head_width = 4: gpt2 has width / heads, 64 / 8; drop the key"},
    {GPT2_LINES "heads = 8\nrope_theta = 4\n", false,
     "config.ini:12: [model] rope_theta = 4: gpt2 learns its positions; the key is llama's"},
    {LLAMA_LINES "heads = 8\nkv_heads = 3\n", false,
     "config.ini:12: [model] kv_heads = 3: does not divide heads 8; 2 and 4 would do"},
    {LLAMA_LINES "heads = 8\nkv_heads = 16\n", false,
     "config.ini:12: [model] kv_heads = 16: does not divide heads 8; 8 would do"},
    {LLAMA_LINES "heads = 64\n", false,
     "config.ini: [model] head_width = 1: the rotary embedding turns pairs; 2 would do"},
    {LLAMA_LINES "heads = 7\nhead_width = 3\n", false,
     "config.ini:12: [model] head_width = 3: the rotary embedding turns pairs; 2 and 4 would do"},
    {LLAMA_LINES "heads = 4\n", false,
     "config.ini: [model] vocabulary: required key is missing; token files do not say it"},
    {"[model]\npreset = gpt2\nfamily = llama\n", false,
     "config.ini:8: [model] family = llama: the preset's family is gpt2"},
    {"[model]\npreset = gpt2\nheads = 13\n", false,
     "config.ini:8: [model] heads = 13: does not divide width 768; 12 and 16 would do"},
    {"[model]\npreset = gpt2\nfrom = model\n", true,
     "config.ini:7: [model] preset = gpt2: the shape comes from the folder of from = model; give one of the two"},
    {"[model]\nfrom = model\nfamily = gpt2\n", true,
     "config.ini:8: [model] family = gpt2: model holds a llama model; drop the key or correct it"},
    {"[model]\nfrom = model\nlayers = 4\n", true,
     "config.ini:8: [model] layers = 4: model says 3; drop the key or correct it"},
    {"[model]\nfrom = model\nvocabulary = 98\n", true,
     "config.ini:8: [model] vocabulary = 98: model says 97; drop the key or correct it"},
    {"[model]\nfrom = model\ntied = no\n", true,
     "config.ini:8: [model] tied = no: model says yes; drop the key or correct it"},
    {"[model]\nfrom = model\nnorm_epsilon = 1e-5\n", true,
     "config.ini:8: [model] norm_epsilon = 1e-5: model says 1e-06; drop the key or correct it"},
    {"[model]\nfrom = model\nrope_theta = 1\n", true,
     "config.ini:8: [model] rope_theta = 1: model says 5000; drop the key or correct it"},
};

static void mistakes_in_the_shape(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad_models / sizeof *bad_models; i++) {
        error e = {0};
        model_shape shape;
        config *c = small_config_read(run, bad_models[i].more, NULL);
        assert_false(config_resolve_model(c, bad_models[i].from ? &in_folder : NULL, 0, &shape, &e));
        assert_string_equal(e.message, bad_models[i].message);
        assert_int_equal(e.code, EXIT_USAGE);
        config_free(c);
    }
}

static void unknown_presets_are_told_the_known(void **state) {
    (void)state;
    error e = {0};
    config *c = NULL;
    small_config_write(run, "[model]\npreset = gpt3\n");
    assert_false(config_read("config.ini", NULL, 0, &c, &e));
    assert_string_equal(e.message,
                        "config.ini:7: [model] preset = gpt3: unknown word; accepted is gpt2 | gpt2-medium | "
                        "gpt2-large | gpt2-xl | llama-3.2-1b | llama-3.2-3b | llama-3.1-8b | llama-3.1-70b | "
                        "smollm2-135m | smollm2-360m | smollm2-1.7b");
}

/* Parameters as transformers counts them for the published models. */
static void presets_have_the_published_sizes(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int64_t parameters;
    } published[PRESET_COUNT] = {
        {"gpt2", 124439808},          {"gpt2-medium", 354823168},     {"gpt2-large", 774030080},
        {"gpt2-xl", 1557611200},      {"llama-3.2-1b", 1235814400},   {"llama-3.2-3b", 3212749824},
        {"llama-3.1-8b", 8030261248}, {"llama-3.1-70b", 70553706496}, {"smollm2-135m", 134515008},
        {"smollm2-360m", 361821120},  {"smollm2-1.7b", 1711376384},
    };
    for (int i = 0; i < PRESET_COUNT; i++) {
        char *more = memory_format("[model]\npreset = %s\n", published[i].name);
        config *c = small_config_read(run, more, NULL);
        model_shape shape = small_config_resolve(c, NULL, 256);
        model *m = model_create(&shape, 1);
        assert_int_equal(m->list.elements, published[i].parameters);
        model_destroy(m);
        config_free(c);
        free(more);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shape_of_llama_by_default),
        cmocka_unit_test(feed_forward_is_rounded_up),
        cmocka_unit_test(shape_of_gpt2_by_default),
        cmocka_unit_test(explicit_keys_win_over_a_preset),
        cmocka_unit_test(shape_of_a_model_folder),
        cmocka_unit_test(mistakes_in_the_shape),
        cmocka_unit_test(unknown_presets_are_told_the_known),
        cmocka_unit_test(presets_have_the_published_sizes),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
