/* What keys and the number of ranks say together, and every mistake in that by its exact message. */
#include "engine/checked.h"
#include "support/folder.h"
#include "support/small_config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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
    config *c = small_config_read(small_config, "[output]\ntrace_steps = 101 200\n", steps);
    small_config_resolve(c, NULL, 256);
    assert_true(config_check(c, 1, NULL, &e));
    c->output.trace_steps[0] = 100;
    assert_false(config_check(c, 1, NULL, &e));
    assert_string_equal(e.message, "config.ini:13: [output] trace_steps = 101 200: a trace has at most 100 steps");
    config_free(c);
    c = small_config_read(small_config, "", (const char *const[]){"train.steps=1", NULL});
    small_config_resolve(c, NULL, 256);
    assert_true(config_check(c, 1, NULL, &(error){0}));
    assert_true(c->output.trace_steps[0] <= 1 && c->output.trace_steps[1] <= 1); /* the default is cut to the run */
    config_free(c);
}

static void reproducible_groups_are_a_power_of_two(void **state) {
    (void)state;
    error e = {0};
    config *c = small_config_read(small_config, "[shard]\nreduce = reproducible\ngroup = 2\n", NULL);
    small_config_resolve(c, NULL, 256);
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
        config *c = small_config_read(small_config, "[shard]\ngroup = node\n", NULL);
        small_config_resolve(c, NULL, 256);
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
        config *c = small_config_read(small_config, bad_runs[i].more, NULL);
        small_config_resolve(c, NULL, 256);
        assert_false(config_check(c, bad_runs[i].ranks, NULL, &e));
        assert_string_equal(e.message, bad_runs[i].message);
        assert_int_equal(e.code, EXIT_USAGE);
        config_free(c);
    }
}

static void strategies_are_three_settings(void **state) {
    (void)state;
    error e = {0};
    config *c = small_config_read(small_config, "[shard]\nstrategy = full\nkeep_gathered = no\ngroup = 4\n", NULL);
    small_config_resolve(c, NULL, 256);
    assert_true(config_check(c, 4, NULL, &e));
    assert_int_equal(c->shard.group, 4);
    assert_int_equal(c->shard.keep_gathered, CONFIG_NO);
    assert_int_equal(c->shard.reduce_every, CONFIG_EACH);
    config_free(c);
    c = small_config_read(small_config, "[shard]\nstrategy = none\n", NULL);
    small_config_resolve(c, NULL, 256);
    assert_true(config_check(c, 4, NULL, &e));
    assert_int_equal(c->shard.group, 1);
    assert_int_equal(c->shard.keep_gathered, CONFIG_YES);
    assert_int_equal(c->shard.reduce_every, CONFIG_LAST);
    config_free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(traces_have_an_end),
        cmocka_unit_test(reproducible_groups_are_a_power_of_two),
        cmocka_unit_test(a_group_may_be_the_node),
        cmocka_unit_test(mistakes_in_several_keys),
        cmocka_unit_test(strategies_are_three_settings),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
