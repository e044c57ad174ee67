/* Config files and overrides: types, defaults, every mistake by its exact message, where the model's shape comes from,
 * and what keys and ranks say together. */
#include "comm/collectives.h"
#include "engine/checked.h"
#include "launch/config.h"
#include "launch/data.h"
#include "launch/presets.h"
#include "optim/learning_rate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/test_config_XXXXXX";

static int enter_folder(void **state) {
    (void)state;
    return mkdtemp(folder) == NULL || chdir(folder) != 0;
}

static int leave_folder(void **state) {
    (void)state;
    return unlink("config.ini") != 0 || chdir("/") != 0 || rmdir(folder) != 0;
}

/* A whole config of eleven lines; what a case adds starts at line 12. */
static const char small[] = "[model]\n"
                            "family = llama\n"
                            "layers = 2\n"
                            "width = 64\n"
                            "heads = 8\n"
                            "context = 32\n"
                            "[data]\n"
                            "train = text.txt\n"
                            "[train]\n"
                            "steps = 3\n"
                            "global_batch = 8\n";

static void write_config(const char *text, const char *more) {
    FILE *f = fopen("config.ini", "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0 && fputs(more, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

enum { ARGUMENTS = 4 };

/* Up to the first NULL. */
static int count_arguments(const char *const *arguments) {
    int count = 0;
    while (count < ARGUMENTS && arguments[count] != NULL)
        count++;
    return count;
}

static config *read_config(const char *text, const char *more, const char *const *arguments) {
    error e = {0};
    config *c = NULL;
    write_config(text, more);
    config_read("config.ini", arguments, arguments != NULL ? count_arguments(arguments) : 0, &c, &e);
    assert_string_equal(e.message, "");
    return c;
}

/* ---- what is read ---- */

static void defaults(void **state) {
    (void)state;
    config *c = read_config(small, "", NULL);
    assert_int_equal(c->model.preset, -1);
    assert_null(c->model.from);
    assert_int_equal(c->model.kv_heads, 0);
    assert_int_equal(c->model.tied, -1);
    assert_true(c->model.norm_epsilon == 1e-5);
    assert_true(c->model.rope_theta == 10000);
    assert_true(c->model.initialisation == 0.02);
    assert_int_equal(c->data.validation.count, 0);
    assert_true(c->data.validation_fraction == 0);
    assert_int_equal(c->data.format, TOKEN_FORMAT_AUTO);
    assert_string_equal(c->data.tokenizer, "bytes");
    assert_int_equal(c->data.order, DATA_SHUFFLED);
    assert_null(c->data.cache);
    assert_int_equal(c->train.micro_batch, 1);
    assert_int_equal(c->train.seed, 1);
    assert_int_equal(c->train.validate_every, 0);
    assert_int_equal(c->train.validation_batches, 8);
    assert_int_equal(c->train.nonfinite, CONFIG_NONFINITE_STOP);
    assert_true(c->optimizer.learning_rate == 3e-4);
    assert_true(c->optimizer.minimum_learning_rate == 0);
    assert_int_equal(c->optimizer.schedule, RATE_CONSTANT);
    assert_int_equal(c->optimizer.warmup, 0);
    assert_true(c->optimizer.betas[0] == 0.9 && c->optimizer.betas[1] == 0.95);
    assert_true(c->optimizer.epsilon == 1e-8);
    assert_true(c->optimizer.weight_decay == 0.1);
    assert_true(c->optimizer.clip == 1);
    assert_int_equal(c->shard.strategy, CONFIG_FULL);
    assert_int_equal(c->shard.prefetch, 1);
    assert_int_equal(c->shard.unit, 1);
    assert_int_equal(c->shard.transport, TRANSPORT_AUTO);
    assert_true(c->shard.timeout == 600);
    assert_int_equal(c->precision.communicate, CONFIG_COMMUNICATE_FP32);
    assert_int_equal(c->device.kind, CONFIG_DEVICE_AUTO);
    assert_int_equal(c->device.threads, 0);
    assert_int_equal(c->device.share, CONFIG_NO);
    assert_string_equal(c->output.folder, "out/config");
    assert_int_equal(c->output.log_every, 1);
    assert_int_equal(c->output.checkpoint_every, 0);
    assert_int_equal(c->output.keep, 2);
    assert_string_equal(c->output.resume, "auto");
    assert_int_equal(c->output.model_dtype, CONFIG_MODEL_FP32);
    assert_int_equal(c->output.trace, CONFIG_NO);
    config_free(c);
}

static void values_of_every_type(void **state) {
    (void)state;
    config *c = read_config(small,
                            "micro_batch = 4K\nseed = 9007199254740993\nnonfinite = skip\n"
                            "[data]\nvalidation = a.txt \"b c.txt\" d/*.bin\nformat = tokens32\norder = sequential\n"
                            "[model]\ntied = yes\ninitialisation = 1\n"
                            "[optimizer]\nbetas = 0 .999\nlearning_rate = 6E-4\nschedule = cosine\n"
                            "[output]\nfolder = \"my run\"\nmodel_dtype = bf16\nresume = no\n"
                            "[shard]\nstrategy = none\ntransport = messages\n",
                            NULL);
    assert_int_equal(c->train.micro_batch, 4096);
    assert_int_equal(c->train.seed, INT64_C(9007199254740993));
    assert_int_equal(c->train.nonfinite, CONFIG_NONFINITE_SKIP);
    assert_int_equal(c->data.validation.count, 3);
    assert_string_equal(c->data.validation.items[1], "b c.txt");
    assert_int_equal(c->data.format, TOKEN_FORMAT_TOKENS32);
    assert_int_equal(c->data.order, DATA_SEQUENTIAL);
    assert_int_equal(c->model.family, FAMILY_LLAMA);
    assert_int_equal(c->model.tied, CONFIG_YES);
    assert_true(c->model.initialisation == 1);
    assert_true(c->optimizer.betas[0] == 0 && c->optimizer.betas[1] == 0.999);
    assert_true(c->optimizer.learning_rate == 6e-4);
    assert_int_equal(c->optimizer.schedule, RATE_COSINE);
    assert_string_equal(c->output.folder, "my run");
    assert_int_equal(c->output.model_dtype, CONFIG_MODEL_BF16);
    assert_string_equal(c->output.resume, "no");
    assert_int_equal(c->shard.strategy, CONFIG_NONE);
    assert_int_equal(c->shard.transport, TRANSPORT_MESSAGES);
    config_free(c);
}

static void arguments_win_over_the_file(void **state) {
    (void)state;
    const char *arguments[] = {"train.steps=2M", "data.train=x.txt  y.txt", "output.folder=out/a#b",
                               "data.validation="};
    config *c = read_config(small, "[data]\nvalidation = v.txt\n", arguments);
    assert_int_equal(c->train.steps, 2 << 20);
    assert_int_equal(c->data.train.count, 2);
    assert_string_equal(c->data.train.items[1], "y.txt");
    assert_string_equal(c->output.folder, "out/a#b");
    assert_int_equal(c->data.validation.count, 0);
    assert_false(config_given(c, &c->data.validation));
    assert_true(config_given(c, &c->train.steps));
    assert_true(config_given(c, &c->model.width));
    assert_false(config_given(c, &c->train.micro_batch));
    config_free(c);
}

/* ---- mistakes in one key ---- */

typedef struct bad_config {
    const char *more, *argument, *message;
} bad_config;

#define AT "config.ini:13: "
static const bad_config bad_configs[] = {
    /* names */
    {"[train]\nmicro_bacth = 4\n", NULL, AT "[train] micro_bacth: unknown key; did you mean micro_batch?"},
    {"[train]\nprefetch = 2\n", NULL, AT "[train] prefetch: unknown key; did you mean [shard] prefetch?"},
    {"[device]\ngadget = 2\n", NULL,
     AT "[device] gadget: unknown key; accepted is kind, threads, share, bind, topology, graph"},
    {"\n[trian]\n", NULL, AT "[trian]: unknown section; did you mean [train]?"},
    {"\n[zebra]\n", NULL,
     AT "[zebra]: unknown section; accepted is model, data, train, optimizer, shard, precision, device, output"},
    {"[train]\nsteps = 7\n", NULL, AT "[train] steps = 7: given twice; first in config.ini:10"},
    /* types and ranges */
    {"[train]\nmicro_batch = four\n", NULL,
     AT "[train] micro_batch = four: wrong type; accepted is a whole number, 1 to 2147483647"},
    {"[train]\nmicro_batch = 1.5\n", NULL,
     AT "[train] micro_batch = 1.5: wrong type; accepted is a whole number, 1 to 2147483647"},
    {"[train]\nmicro_batch = 4k\n", NULL,
     AT "[train] micro_batch = 4k: wrong type; accepted is a whole number, 1 to 2147483647"},
    {"[train]\nmicro_batch = 0\n", NULL,
     AT "[train] micro_batch = 0: out of range; accepted is a whole number, 1 to 2147483647"},
    {"[train]\nmicro_batch = -3\n", NULL,
     AT "[train] micro_batch = -3: out of range; accepted is a whole number, 1 to 2147483647"},
    {"[train]\nseed = 99999999999999999999\n", NULL,
     AT "[train] seed = 99999999999999999999: out of range; accepted is a whole number, 0 or more"},
    {"[train]\nmicro_batch =\n", NULL, AT "[train] micro_batch: no value; accepted is a whole number, 1 to 2147483647"},
    {"[train]\nmicro_batch = 1 2\n", NULL,
     AT "[train] micro_batch = 1 2: one value expected; double quotes keep blanks; accepted is a whole number, "
        "1 to 2147483647"},
    {"[optimizer]\nlearning_rate = fast\n", NULL,
     AT "[optimizer] learning_rate = fast: wrong type; accepted is a number, 0 or more"},
    {"[optimizer]\nlearning_rate = nan\n", NULL,
     AT "[optimizer] learning_rate = nan: wrong type; accepted is a number, 0 or more"},
    {"[optimizer]\nlearning_rate = 1e999\n", NULL,
     AT "[optimizer] learning_rate = 1e999: out of range; accepted is a number, 0 or more"},
    {"[optimizer]\nepsilon = 0\n", NULL, AT "[optimizer] epsilon = 0: out of range; accepted is a number, above 0"},
    {"[optimizer]\nbetas = 0.9\n", NULL,
     AT "[optimizer] betas = 0.9: two values expected; accepted is two numbers, 0 or more and below 1"},
    {"[optimizer]\nbetas = 0.9 1\n", NULL,
     AT "[optimizer] betas = 0.9 1: out of range; accepted is two numbers, 0 or more and below 1"},
    {"[data]\nvalidation_fraction = 1\n", NULL,
     AT "[data] validation_fraction = 1: out of range; accepted is a number, 0 or more and below 1"},
    {"[data]\norder = shuffle\n", NULL, AT "[data] order = shuffle: unknown word; accepted is shuffled | sequential"},
    {"[model]\ntied = true\n", NULL, AT "[model] tied = true: unknown word; accepted is no | yes"},
    {"[output]\nfolder = \"\"\n", NULL, AT "[output] folder = : no value; accepted is a folder"},
    {"[output]\nfolder = my run\n", NULL,
     AT "[output] folder = my run: one value expected; double quotes keep blanks; accepted is a folder"},
    {"[shard]\ntransport = mpi\n", NULL,
     AT "[shard] transport = mpi: unknown word; accepted is auto | window | messages"},
    /* arguments */
    {"", "train.steps=x",
     "argument train.steps=x: [train] steps: wrong type; accepted is a whole number, 1 to 2147483647"},
    {"", "train.step=7", "argument train.step=7: [train] step: unknown key; did you mean steps?"},
    {"", "tarin.steps=7", "argument tarin.steps=7: [tarin]: unknown section; did you mean [train]?"},
    {"", "steps=7", "argument steps=7: overrides are written section.key=value; did you mean train.steps=...?"},
    {"", "gadget=7", "argument gadget=7: overrides are written section.key=value"},
    {"", "data.train=\"a", "argument data.train=\"a: a double quote is not closed"},
    {"", "train.steps=", "argument train.steps=: [train] steps: no value; accepted is a whole number, 1 to 2147483647"},
    /* later work */
    {"[precision]\ncompute = fp8\n", NULL,
     AT "[precision] compute = fp8: not built yet; built is fp32 | tf32 | bf16 | fp16"},
    {"[output]\ncheckpoint_every = -1\n", NULL,
     AT "[output] checkpoint_every = -1: out of range; accepted is a whole number, 0 to 2147483647"},
    {"[output]\ncheckpoint_failure = shout\n", NULL,
     AT "[output] checkpoint_failure = shout: unknown word; accepted is continue | stop"},
    {"[output]\ntrace_steps = 2\n", NULL,
     AT "[output] trace_steps = 2: two values expected; accepted is two numbers, 1 to 2147483647"},
    {"[output]\ntrace_steps = 0 1\n", NULL,
     AT "[output] trace_steps = 0 1: out of range; accepted is two numbers, 1 to 2147483647"},
    {"[shard]\ntimeout = 0\n", NULL, AT "[shard] timeout = 0: out of range; accepted is a number, above 0"},
    {"[shard]\nprefetch = -1\n", NULL, AT "[shard] prefetch = -1: out of range; accepted is a whole number, 0 to 4096"},
    {"[data]\ncache = out/cache\n", NULL, AT "[data] cache = out/cache: not built yet"},
    {"[data]\ntokenizer = gpt2\n", NULL, AT "[data] tokenizer = gpt2: not built yet; built is bytes"},
};

static void mistakes_in_one_key(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad_configs / sizeof *bad_configs; i++) {
        const bad_config *bad = &bad_configs[i];
        error e = {0};
        config *c = NULL;
        write_config(small, bad->more);
        assert_false(config_read("config.ini", &bad->argument, bad->argument != NULL, &c, &e));
        assert_string_equal(e.message, bad->message);
        assert_int_equal(e.code, EXIT_USAGE);
        assert_false(e.own);
        assert_null(c);
    }
}

static void an_argument_given_twice(void **state) {
    (void)state;
    const char *arguments[] = {"train.steps=5", "train.steps=7"};
    error e = {0};
    config *c = NULL;
    write_config(small, "");
    assert_false(config_read("config.ini", arguments, 2, &c, &e));
    assert_string_equal(e.message,
                        "argument train.steps=7: [train] steps: given twice; first in argument train.steps=5");
}

static void required_keys(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"[train]\nsteps = 1\nglobal_batch = 1\n",
         "config.ini: [data] train: required key is missing; accepted is paths or globs"},
        {"[data]\ntrain = x\n[train]\nglobal_batch = 1\n",
         "config.ini: [train] steps: required key is missing; accepted is a whole number, 1 to 2147483647"},
        {"[data]\ntrain = x\n[train]\nsteps = 1\n",
         "config.ini: [train] global_batch: required key is missing; accepted is a whole number, 1 to 2147483647"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        error e = {0};
        config *c = NULL;
        write_config(cases[i][0], "");
        assert_false(config_read("config.ini", NULL, 0, &c, &e));
        assert_string_equal(e.message, cases[i][1]);
    }
}

/* ---- the model's shape ---- */

static const char run[] = "[data]\ntrain = text.txt\n[train]\nsteps = 3\nglobal_batch = 8\n"; /* five lines */

static model_shape resolve(config *c, const model_shape *from, int64_t tokenizer) {
    error e = {0};
    model_shape shape = {0};
    config_resolve_model(c, from, tokenizer, &shape, &e);
    assert_string_equal(e.message, "");
    return shape;
}

static void shape_of_llama_by_default(void **state) {
    (void)state;
    config *c = read_config(small, "", NULL);
    model_shape s = resolve(c, NULL, 256);
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
        config *c = read_config(small, "", (const char *const[]){argument, "model.heads=2", NULL});
        assert_int_equal(resolve(c, NULL, 256).feed_forward, widths[i][1]);
        config_free(c);
        free(argument);
    }
}

static void shape_of_gpt2_by_default(void **state) {
    (void)state;
    config *c =
        read_config(small, "[shard]\n", (const char *const[]){"model.family=gpt2", "model.vocabulary=97", NULL});
    model_shape s = resolve(c, NULL, 256);
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
    config *c = read_config(run,
                            "[model]\npreset = llama-3.2-1b\nvocabulary = 32000\nlayers = 2\ntied = no\n"
                            "rope_theta = 1000\n",
                            NULL);
    model_shape s = resolve(c, NULL, 256), p = *preset_shape(4);
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

    c = read_config(run, "[model]\npreset = gpt2\nwidth = 96\nheads = 6\n", NULL);
    s = resolve(c, NULL, 256);
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
    config *c = read_config(run, "[model]\nfrom = model\nlayers = 3\nfamily = llama\ntied = yes\n", NULL);
    model_shape s = resolve(c, &in_folder, 256);
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
        config *c = read_config(run, bad_models[i].more, NULL);
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
    write_config(run, "[model]\npreset = gpt3\n");
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
        config *c = read_config(run, more, NULL);
        model_shape shape = resolve(c, NULL, 256);
        model *m = model_create(&shape, 1);
        assert_int_equal(m->list.elements, published[i].parameters);
        model_destroy(m);
        config_free(c);
        free(more);
    }
}

/* ---- keys and ranks together ---- */

typedef struct bad_run {
    int ranks;
    const char *more; /* lines from 12, in [train] */
    const char *message;
} bad_run;

static const bad_run bad_runs[] = {
    {2, "micro_batch = 3\n",
     "config.ini:11: [train] global_batch = 8: not a multiple of micro_batch 3 x 2 ranks; 6 and 12 would do"},
    {16, "", "config.ini:11: [train] global_batch = 8: not a multiple of micro_batch 1 x 16 ranks; 16 would do"},
    {1, "sequence = 33\n", "config.ini:12: [train] sequence = 33: longer than the model's context, 32"},
    {1, "micro_batch = 128M\n",
     "config.ini:12: [train] micro_batch = 128M: with sequence 32 these are more than 2147483647 tokens in a pass"},
    {1, "validate_every = 5\n",
     "config.ini:12: [train] validate_every = 5: nothing to validate on; give [data] validation or "
     "validation_fraction"},
    {1, "[data]\nvalidation = v.txt\nvalidation_fraction = 0.1\n",
     "config.ini:14: [data] validation_fraction = 0.1: [data] validation is given too; give one of the two"},
    {1, "[optimizer]\nminimum_learning_rate = 1\n",
     "config.ini:13: [optimizer] minimum_learning_rate = 1: above learning_rate 0.0003"},
    {4, "[shard]\ngroup = 3\n", "config.ini:13: [shard] group = 3: does not divide 4 ranks; 2 and 4 would do"},
    {1, "[shard]\ngroup = 2\n", "config.ini:13: [shard] group = 2: does not divide 1 rank; 1 would do"},
    {4, "[shard]\nstrategy = none\ngroup = 4\n",
     "config.ini:14: [shard] group = 4: strategy = none shards nothing, so a group is one rank"},
    {4, "[shard]\nstrategy = none\ngroup = node\n",
     "config.ini:14: [shard] group = node: strategy = none shards nothing, so a group is one rank"},
    {2, "[shard]\nreduce = reproducible\nreduce_every = last\n",
     "config.ini:14: [shard] reduce_every = last: reduce = reproducible reduces each micro-batch"},
    {2, "[shard]\nstrategy = none\nreduce_every = each\n",
     "config.ini:14: [shard] reduce_every = each: not built yet for shard groups of one rank; built is last"},
    {1, "[output]\ntrace_steps = 1.5 2\n", "config.ini:13: [output] trace_steps = 1.5 2: steps are whole numbers"},
    {1, "[output]\ntrace_steps = 3 2\n",
     "config.ini:13: [output] trace_steps = 3 2: a first and a last step of 1 to 3 are expected"},
    {1, "[output]\ntrace_steps = 2 4\n",
     "config.ini:13: [output] trace_steps = 2 4: a first and a last step of 1 to 3 are expected"},
};

static void traces_have_an_end(void **state) {
    (void)state;
    error e = {0};
    const char *steps[] = {"train.steps=200", NULL};
    config *c = read_config(small, "[output]\ntrace_steps = 101 200\n", steps);
    resolve(c, NULL, 256);
    assert_true(config_check(c, 1, NULL, &e));
    c->output.trace_steps[0] = 100;
    assert_false(config_check(c, 1, NULL, &e));
    assert_string_equal(e.message, "config.ini:13: [output] trace_steps = 101 200: a trace has at most 100 steps");
    config_free(c);
    c = read_config(small, "", (const char *const[]){"train.steps=1", NULL});
    resolve(c, NULL, 256);
    assert_true(config_check(c, 1, NULL, &(error){0}));
    assert_true(c->output.trace_steps[0] <= 1 && c->output.trace_steps[1] <= 1); /* the default is cut to the run */
    config_free(c);
}

static void reproducible_groups_are_a_power_of_two(void **state) {
    (void)state;
    error e = {0};
    config *c = read_config(small, "[shard]\nreduce = reproducible\ngroup = 2\n", NULL);
    resolve(c, NULL, 256);
    c->train.global_batch = 6;
    assert_false(config_check(c, 6, NULL, &e));
    assert_string_equal(
        e.message,
        "config.ini:14: [shard] group = 2: with reduce = reproducible the number of groups, 3, must be a power of two");
    config_free(c);
}

static void a_group_may_be_the_node(void **state) {
    (void)state;
    static const int six[] = {0, 0, 1, 1, 2, 2}, uneven[] = {0, 0, 0, 0, 1, 1}, by_node[] = {0, 1, 2, 0, 1, 2};
    static const int short_end[] = {0, 0, 0, 0, 1, 2};
    const struct {
        const int *node_of;
        int64_t group;
        const char *refused;
    } cases[] = {
        {six, 2, NULL},
        {NULL, 6, NULL},
        {uneven, 0, "node 1 has 2 ranks, node 0 has 4; start as many on every node, or give a number"},
        {short_end, 0, "node 1 has 1 rank, node 0 has 4; start as many on every node, or give a number"},
        {by_node, 0,
         "the ranks of a node do not follow one another; start them so (mpirun --map-by slot, srun "
         "--distribution=block), or give a number"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        error e = {0};
        char expected[256] = "";
        config *c = read_config(small, "[shard]\ngroup = node\n", NULL);
        resolve(c, NULL, 256);
        c->train.global_batch = 6;
        assert_int_equal(config_check(c, 6, cases[i].node_of, &e), cases[i].refused == NULL);
        if (cases[i].refused != NULL)
            snprintf(expected, sizeof expected, "config.ini:13: [shard] group = node: %s", cases[i].refused);
        assert_string_equal(e.message, expected);
        assert_int_equal(c->shard.group, cases[i].group);
        config_free(c);
    }
}

static void mistakes_in_several_keys(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad_runs / sizeof *bad_runs; i++) {
        error e = {0};
        config *c = read_config(small, bad_runs[i].more, NULL);
        resolve(c, NULL, 256);
        assert_false(config_check(c, bad_runs[i].ranks, NULL, &e));
        assert_string_equal(e.message, bad_runs[i].message);
        assert_int_equal(e.code, EXIT_USAGE);
        config_free(c);
    }
}

static void strategies_are_three_settings(void **state) {
    (void)state;
    error e = {0};
    config *c = read_config(small, "[shard]\nstrategy = full\nkeep_gathered = no\ngroup = 4\n", NULL);
    resolve(c, NULL, 256);
    assert_true(config_check(c, 4, NULL, &e));
    assert_int_equal(c->shard.group, 4);
    assert_int_equal(c->shard.keep_gathered, CONFIG_NO);
    assert_int_equal(c->shard.reduce_every, CONFIG_EACH);
    config_free(c);
    c = read_config(small, "[shard]\nstrategy = none\n", NULL);
    resolve(c, NULL, 256);
    assert_true(config_check(c, 4, NULL, &e));
    assert_int_equal(c->shard.group, 1);
    assert_int_equal(c->shard.keep_gathered, CONFIG_YES);
    assert_int_equal(c->shard.reduce_every, CONFIG_LAST);
    config_free(c);
}

static void other_modules_refuse_by_field(void **state) {
    (void)state;
    error e = {0};
    config *c = read_config(small, "", (const char *const[]){"train.sequence=7", NULL});
    assert_false(config_refuse(c, &c->data.train, &e, "holds %d tokens", 3));
    assert_string_equal(e.message, "config.ini:8: [data] train = text.txt: holds 3 tokens");
    e = (error){0};
    config_refuse(c, &c->train.sequence, &e, "too long");
    assert_string_equal(e.message, "argument train.sequence=7: [train] sequence: too long");
    e = (error){0};
    config_refuse(c, &c->optimizer.betas, &e, "odd");
    assert_string_equal(e.message, "config.ini: [optimizer] betas = 0.9 0.95: odd");
    e = (error){0};
    config_refuse(c, &c->device.threads, &e, "odd");
    assert_string_equal(e.message, "config.ini: [device] threads: odd");
    config_free(c);
}

/* ---- what is printed ---- */

/* The keys of the user's documentation, section by section. */
static const char *const documented[] = {"model.family",
                                         "model.preset",
                                         "model.from",
                                         "model.layers",
                                         "model.width",
                                         "model.heads",
                                         "model.kv_heads",
                                         "model.head_width",
                                         "model.feed_forward",
                                         "model.vocabulary",
                                         "model.context",
                                         "model.tied",
                                         "model.norm_epsilon",
                                         "model.rope_theta",
                                         "model.initialisation",
                                         "data.train",
                                         "data.validation",
                                         "data.validation_fraction",
                                         "data.format",
                                         "data.tokenizer",
                                         "data.order",
                                         "data.cache",
                                         "train.steps",
                                         "train.global_batch",
                                         "train.micro_batch",
                                         "train.sequence",
                                         "train.seed",
                                         "train.validate_every",
                                         "train.validation_batches",
                                         "train.nonfinite",
                                         "optimizer.kind",
                                         "optimizer.learning_rate",
                                         "optimizer.minimum_learning_rate",
                                         "optimizer.schedule",
                                         "optimizer.warmup",
                                         "optimizer.betas",
                                         "optimizer.epsilon",
                                         "optimizer.weight_decay",
                                         "optimizer.clip",
                                         "shard.strategy",
                                         "shard.group",
                                         "shard.prefetch",
                                         "shard.keep_gathered",
                                         "shard.reduce_every",
                                         "shard.unit",
                                         "shard.recompute",
                                         "shard.memory",
                                         "shard.reduce",
                                         "shard.transport",
                                         "shard.ring",
                                         "shard.timeout",
                                         "precision.compute",
                                         "precision.communicate",
                                         "precision.loss_scale",
                                         "device.kind",
                                         "device.threads",
                                         "device.share",
                                         "device.bind",
                                         "device.topology",
                                         "device.graph",
                                         "output.folder",
                                         "output.log_every",
                                         "output.checkpoint_every",
                                         "output.keep",
                                         "output.checkpoint_background",
                                         "output.checkpoint_failure",
                                         "output.resume",
                                         "output.accept",
                                         "output.model_dtype",
                                         "output.trace",
                                         "output.trace_steps"};

static void keys_are_all_listed(void **state) {
    (void)state;
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    config_print_keys(out);
    fclose(out);
    size_t lines = 0;
    for (const char *line = text; line != NULL; line = strchr(line + 1, '\n'))
        lines += strcspn(line + 1, ".") < strcspn(line + 1, " \n");
    assert_int_equal(lines, sizeof documented / sizeof *documented);
    for (size_t i = 0; i < sizeof documented / sizeof *documented; i++) {
        char *start = memory_format("\n%s = ", documented[i]);
        assert_non_null(strstr(text, start));
        free(start);
    }
    assert_non_null(strstr(text, "\ntrain.micro_batch = 1                 sequences per rank and pass; the passes of a "
                                 "step are accumulated [a whole number, 1 to 2147483647]\n"));
    assert_non_null(
        strstr(text, "\nshard.strategy = full                 what is sharded over the ranks: ZeRO-3, 2, 1, nothing "
                     "(DDP) [full | gradients | optimizer | none]\n"));
    free(text);
}

static void json_holds_every_key_resolved(void **state) {
    (void)state;
    error e = {0};
    config *c = read_config(small, "[data]\nvalidation = a \"b c\"\n", NULL);
    resolve(c, NULL, 256);
    assert_true(config_check(c, 2, NULL, &e));
    json_t *sections = config_json(c);
    for (size_t i = 0; i < sizeof documented / sizeof *documented; i++) {
        char *section = memory_copy_string(documented[i]), *dot = strchr(section, '.');
        *dot = '\0';
        assert_non_null(json_object_get(json_object_get(sections, section), dot + 1));
        free(section);
    }
    char *text = json_dumps(sections, JSON_COMPACT);
    assert_non_null(strstr(text,
                           "\"model\":{\"family\":\"llama\",\"preset\":null,\"from\":null,\"layers\":2,\"width\":64,"
                           "\"heads\":8,\"kv_heads\":8,\"head_width\":8,\"feed_forward\":192,\"vocabulary\":256,"
                           "\"context\":32,\"tied\":\"no\","));
    assert_non_null(
        strstr(text, "\"train\":[\"text.txt\"],\"validation\":[\"a\",\"b c\"],\"validation_fraction\":0.0,"));
    assert_non_null(strstr(text, "\"shard\":{\"strategy\":\"full\",\"group\":2,\"prefetch\":1,\"keep_gathered\":\"no\","
                                 "\"reduce_every\":\"each\",\"unit\":1,\"recompute\":\"none\",\"memory\":\"auto\","));
    assert_non_null(strstr(text, "\"loss_scale\":\"dynamic\""));
    free(text);
    json_decref(sections);
    config_free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(values_of_every_type),
        cmocka_unit_test(arguments_win_over_the_file),
        cmocka_unit_test(mistakes_in_one_key),
        cmocka_unit_test(an_argument_given_twice),
        cmocka_unit_test(required_keys),
        cmocka_unit_test(shape_of_llama_by_default),
        cmocka_unit_test(feed_forward_is_rounded_up),
        cmocka_unit_test(shape_of_gpt2_by_default),
        cmocka_unit_test(explicit_keys_win_over_a_preset),
        cmocka_unit_test(shape_of_a_model_folder),
        cmocka_unit_test(mistakes_in_the_shape),
        cmocka_unit_test(unknown_presets_are_told_the_known),
        cmocka_unit_test(presets_have_the_published_sizes),
        cmocka_unit_test(mistakes_in_several_keys),
        cmocka_unit_test(reproducible_groups_are_a_power_of_two),
        cmocka_unit_test(a_group_may_be_the_node),
        cmocka_unit_test(strategies_are_three_settings),
        cmocka_unit_test(traces_have_an_end),
        cmocka_unit_test(other_modules_refuse_by_field),
        cmocka_unit_test(keys_are_all_listed),
        cmocka_unit_test(json_holds_every_key_resolved),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
