/* What several keys, and keys and ranks, say together. */
#include "engine/checked.h"
#include "launch/config.h"
#include "launch/config_suggest.h"

#include <math.h>
#include <string.h>

static bool check_batch(const config *c, int ranks, error *e) {
    const config_train *t = &c->train;
    char values[SUGGESTION];
    int64_t pass = t->micro_batch * ranks, step_tokens, all_tokens;
    if (t->sequence > c->model.context)
        return config_refuse(c, &t->sequence, e, "longer than the model's context, %lld", (long long)c->model.context);
    if (t->micro_batch > INT32_MAX / t->sequence)
        return config_refuse(c, &t->micro_batch, e, "with sequence %lld these are more than %d tokens in a pass",
                             (long long)t->sequence, INT32_MAX);
    if (t->global_batch % pass != 0)
        return config_refuse(c, &t->global_batch, e, "not a multiple of micro_batch %lld x %d ranks; %s",
                             (long long)t->micro_batch, ranks, suggest_multiples(t->global_batch, pass, values));
    if (!checked_multiply(t->global_batch, t->sequence, &step_tokens) ||
        !checked_multiply(step_tokens, t->steps, &all_tokens))
        return config_refuse(c, &t->steps, e, "steps * global_batch * sequence does not fit in 64 bits");
    return true;
}

static bool check_validation(const config *c, error *e) {
    const config_data *d = &c->data;
    bool fraction = d->validation_fraction > 0, files = d->validation.count > 0;
    if (files && fraction)
        return config_refuse(c, &d->validation_fraction, e, "[data] validation is given too; give one of the two");
    if (c->train.validate_every > 0 && !files && !fraction)
        return config_refuse(c, &c->train.validate_every, e,
                             "nothing to validate on; give [data] validation or validation_fraction");
    return true;
}

static bool check_optimizer(const config *c, error *e) {
    const config_optimizer *o = &c->optimizer;
    if (o->minimum_learning_rate > o->learning_rate)
        return config_refuse(c, &o->minimum_learning_rate, e, "above learning_rate %g", o->learning_rate);
    return true;
}

/* A strategy is three settings. An explicit key wins. */
typedef struct strategy_settings {
    bool sharded;
    int keep_gathered, reduce_every;
} strategy_settings;

static const strategy_settings strategies[] = {
    [CONFIG_FULL] = {true, CONFIG_NO, CONFIG_EACH},
    [CONFIG_GRADIENTS] = {true, CONFIG_YES, CONFIG_EACH},
    [CONFIG_OPTIMIZER] = {true, CONFIG_YES, CONFIG_LAST},
    [CONFIG_NONE] = {false, CONFIG_YES, CONFIG_LAST},
};

static int ranks_on(const int *node_of, int ranks, int node) {
    int count = 0;
    for (int r = 0; r < ranks; r++)
        count += node_of == NULL ? node == 0 : node_of[r] == node;
    return count;
}

static bool refuse_nodes(const config *c, int ranks, const int *node_of, int size, error *e) {
    for (int r = 0; r < ranks; r++) {
        const int here = ranks_on(node_of, ranks, node_of[r]);
        if (here != size)
            return config_refuse(c, &c->shard.group, e,
                                 "node %d has %d rank%s, node 0 has %d; start as many on every node, or give a number",
                                 node_of[r], here, here == 1 ? "" : "s", size);
    }
    return config_refuse(c, &c->shard.group, e,
                         "the ranks of a node do not follow one another; start them so (mpirun --map-by slot, srun "
                         "--distribution=block), or give a number");
}

/* The ranks of a shard group follow one another, so those of a node must. */
static bool resolve_node_group(config *c, int ranks, const int *node_of, error *e) {
    const int size = ranks_on(node_of, ranks, 0);
    bool regular = ranks % size == 0;
    for (int r = 0; r < ranks && node_of != NULL; r++)
        regular &= node_of[r] == r / size;
    if (!regular)
        return refuse_nodes(c, ranks, node_of, size, e);
    c->shard.group = size;
    return true;
}

static bool resolve_group(config *c, int ranks, const int *node_of, error *e) {
    config_shard *s = &c->shard;
    const bool sharded = strategies[s->strategy].sharded;
    char values[SUGGESTION];
    if (!config_given(c, &s->group))
        s->group = sharded ? ranks : 1;
    else if (s->group == 0 && sharded && !resolve_node_group(c, ranks, node_of, e))
        return false;
    if (!sharded && s->group != 1)
        return config_refuse(c, &s->group, e, "strategy = none shards nothing, so a group is one rank");
    if (s->group > ranks || ranks % s->group != 0)
        return config_refuse(c, &s->group, e, "does not divide %d rank%s; %s", ranks, ranks == 1 ? "" : "s",
                             suggest_divisors(s->group, ranks, values));
    return true;
}

static int64_t odd_part(int64_t n) {
    while (n % 2 == 0)
        n /= 2;
    return n;
}

static bool resolve_strategy(config *c, int ranks, const int *node_of, error *e) {
    config_shard *s = &c->shard;
    const strategy_settings *implied = &strategies[s->strategy];
    if (!resolve_group(c, ranks, node_of, e))
        return false;
    if (!config_given(c, &s->keep_gathered))
        s->keep_gathered = implied->keep_gathered;
    const bool reproducible = s->reduce == CONFIG_REPRODUCIBLE;
    if (!config_given(c, &s->reduce_every))
        s->reduce_every = reproducible ? CONFIG_EACH : implied->reduce_every;
    if (reproducible && s->reduce_every == CONFIG_LAST)
        return config_refuse(c, &s->reduce_every, e, "reduce = reproducible reduces each micro-batch");
    if (reproducible && odd_part(ranks) > 1 && odd_part(ranks / s->group) > 1)
        return config_refuse(c, &s->group, e,
                             "with reduce = reproducible the number of groups, %lld, must be a power of two",
                             (long long)(ranks / s->group));
    if (!reproducible && s->group == 1 && ranks > 1 && config_given(c, &s->reduce_every) &&
        s->reduce_every == CONFIG_EACH)
        return config_refuse(c, &s->reduce_every, e, "not built yet for shard groups of one rank; built is last");
    return true;
}

static bool check_precision(const config *c, error *e) {
    const config_precision *p = &c->precision;
    if (p->communicate == CONFIG_COMMUNICATE_BF16 && c->shard.reduce == CONFIG_REPRODUCIBLE)
        return config_refuse(c, &p->communicate, e,
                             "reduce = reproducible needs fp32: what is rounded on its way depends on the number of "
                             "ranks");
    return true;
}

enum { MOST_TRACED = 100 }; /* a trace of more would be gigabytes that no viewer opens */

static bool resolve_trace(config *c, error *e) {
    double *steps = c->output.trace_steps;
    const double last = (double)c->train.steps;
    if (!config_given(c, steps)) {
        steps[0] = fmin(steps[0], last);
        steps[1] = fmin(steps[1], last);
        return true;
    }
    if (floor(steps[0]) < steps[0] || floor(steps[1]) < steps[1])
        return config_refuse(c, steps, e, "steps are whole numbers");
    if (steps[0] > steps[1] || steps[1] > last)
        return config_refuse(c, steps, e, "a first and a last step of 1 to %.0f are expected", last);
    if (steps[1] - steps[0] >= MOST_TRACED)
        return config_refuse(c, steps, e, "a trace has at most %d steps", MOST_TRACED);
    return true;
}

static const char *const acceptable[] = {"data", "batch", "sequence"};

bool config_acceptable(const char *kind) {
    for (size_t i = 0; i < sizeof acceptable / sizeof *acceptable; i++)
        if (strcmp(acceptable[i], kind) == 0)
            return true;
    return false;
}

bool config_accepts(const config *c, const char *kind) {
    for (size_t i = 0; i < c->output.accept.count; i++)
        if (strcmp(c->output.accept.items[i], kind) == 0)
            return true;
    return false;
}

static bool check_accept(const config *c, error *e) {
    for (size_t i = 0; i < c->output.accept.count; i++)
        if (!config_acceptable(c->output.accept.items[i]))
            return config_refuse(c, &c->output.accept, e, "accepted is any of data, batch, sequence");
    return true;
}

bool config_check(config *c, int ranks, const int *node_of, error *e) {
    return check_batch(c, ranks, e) && check_validation(c, e) && check_optimizer(c, e) &&
           resolve_strategy(c, ranks, node_of, e) && check_precision(c, e) && resolve_trace(c, e) && check_accept(c, e);
}
