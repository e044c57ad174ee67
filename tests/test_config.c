/* Config files and overrides: types, defaults, every mistake in a key by its exact message, and what is printed. */
#include "comm/collectives.h"
#include "engine/checked.h"
#include "launch/data.h"
#include "optim/learning_rate.h"
#include "support/folder.h"
#include "support/small_config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- what is read ---- */

static void defaults(void **state) {
    (void)state;
    config *c = small_config_read(small_config, "", NULL);
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
    config *c =
        small_config_read(small_config,
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
    config *c = small_config_read(small_config, "[data]\nvalidation = v.txt\n", arguments);
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
     AT "[device] gadget: unknown key; accepted is kind, threads, share, bind, topology, graph, fuse"},
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
        small_config_write(small_config, bad->more);
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
    small_config_write(small_config, "");
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
        small_config_write(cases[i][0], "");
        assert_false(config_read("config.ini", NULL, 0, &c, &e));
        assert_string_equal(e.message, cases[i][1]);
    }
}

static void other_modules_refuse_by_field(void **state) {
    (void)state;
    error e = {0};
    config *c = small_config_read(small_config, "", (const char *const[]){"train.sequence=7", NULL});
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
                                         "device.fuse",
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
    config *c = small_config_read(small_config, "[data]\nvalidation = a \"b c\"\n", NULL);
    small_config_resolve(c, NULL, 256);
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
        cmocka_unit_test(other_modules_refuse_by_field),
        cmocka_unit_test(keys_are_all_listed),
        cmocka_unit_test(json_holds_every_key_resolved),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
