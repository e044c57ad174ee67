#include "shard/reducer.h"

#include "engine/checked.h"

#include <stdlib.h>

enum { STAGE_GROUP, STAGE_REPLICAS, STAGE_WIDEN, STAGE_PASSES, STAGE_COUNT };

enum { LEVELS = 64 };

/* A value on its way. */
typedef struct unfinished {
    int32_t unit;
    int64_t pass;
    tensor_id value;
    int stage; /* the next one */
} unfinished;

struct reducer {
    step *step;
    const flat_layout *layout;
    bool reproducible;
    dtype wire;
    unfinished *pending; /* oldest first */
    int32_t pending_count;
    tensor_id (*counter)[LEVELS]; /* [units]: sum of 2^level passes; NO_TENSOR */
};

static bool is_last(const reducer *r, int64_t pass) {
    return pass + 1 == r->step->passes;
}

static bool has_stage(const reducer *r, int stage, int64_t pass) {
    switch (stage) {
    case STAGE_GROUP:
        return r->layout->group_size > 1;
    case STAGE_REPLICAS:
        return r->step->ranks > r->layout->group_size && (r->reproducible || is_last(r, pass));
    case STAGE_WIDEN:
        return r->wire != DTYPE_F32 && has_stage(r, STAGE_REPLICAS, pass);
    case STAGE_PASSES:
        return r->reproducible && r->step->passes > 1;
    default:
        return false;
    }
}

static int next_stage(const reducer *r, int stage, int64_t pass) {
    while (stage < STAGE_COUNT && !has_stage(r, stage, pass))
        stage++;
    return stage;
}

static tensor_id new_tensor(reducer *r, const char *what, int32_t unit, tensor_role role, dtype type,
                            int64_t elements) {
    program *p = r->step->program;
    char *name = memory_format("%s.%s", p->unit_names[unit], what);
    tensor_id t = program_tensor(p, name, role, type, 1, &elements);
    p->tensors[t].unit = unit;
    free(name);
    return t;
}

static tensor_id new_shard(reducer *r, int32_t unit) {
    return new_tensor(r, "gradient_shard", unit, ROLE_GRADIENT_SHARD, DTYPE_F32, r->layout->units[unit].shard);
}

static void cast(reducer *r, unfinished *u, tensor_id to) {
    operation o = operation_make(OPERATION_CAST, PHASE_BACKWARD, u->unit);
    o.pass = (int32_t)u->pass;
    o.in[0] = u->value;
    u->value = o.out[0] = to;
    program_append(r->step->program, &o);
}

/* Brings a value into the type in which it travels. */
static void narrow(reducer *r, unfinished *u) {
    const tensor value = r->step->program->tensors[u->value];
    if (value.type != r->wire)
        cast(r, u, new_tensor(r, "gradient_sent", u->unit, value.role, r->wire, value.shape[0]));
}

static int64_t odd_part(int64_t ranks) {
    while (ranks % 2 == 0)
        ranks /= 2;
    return ranks;
}

static operation reduction(const reducer *r, operation_kind kind, rank_group group, const unfinished *u) {
    const int group_size = group == GROUP_SHARD ? r->layout->group_size : r->step->ranks / r->layout->group_size;
    operation o = operation_make(kind, PHASE_BACKWARD, u->unit);
    o.stream = STREAM_REDUCE;
    o.pass = (int32_t)u->pass;
    o.attributes.group = group;
    o.attributes.odd = r->reproducible ? odd_part(group_size) : 0;
    o.in[0] = u->value;
    return o;
}

/* If not reproducible, the sums of all passes accumulate in one shard. */
static void sum_in_group(reducer *r, unfinished *u) {
    narrow(r, u);
    operation o = reduction(r, OPERATION_REDUCE_SCATTER, GROUP_SHARD, u);
    tensor_id *gradient = &r->step->gradient[u->unit];
    const bool accumulates = !r->reproducible && *gradient != NO_TENSOR;
    u->value = o.out[0] = accumulates ? *gradient : new_shard(r, u->unit);
    o.accumulate = accumulates ? 1 : 0;
    program_append(r->step->program, &o);
}

static void sum_over_replicas(reducer *r, unfinished *u) {
    narrow(r, u);
    operation o = reduction(r, OPERATION_ALL_REDUCE, GROUP_REPLICA, u);
    u->value = o.out[0] =
        new_tensor(r, "gradient_shard", u->unit, ROLE_GRADIENT_SHARD, r->wire, r->layout->units[u->unit].shard);
    program_append(r->step->program, &o);
}

static void widen(reducer *r, unfinished *u) {
    cast(r, u, new_shard(r, u->unit));
}

static tensor_id add(reducer *r, const unfinished *u, tensor_id earlier, tensor_id later) {
    operation o = operation_make(OPERATION_ADD, PHASE_BACKWARD, u->unit);
    o.pass = (int32_t)u->pass;
    o.in[0] = earlier;
    o.in[1] = later;
    o.out[0] = new_shard(r, u->unit);
    program_append(r->step->program, &o);
    return o.out[0];
}

/* A binary counter; at the last pass its remaining sums are added up, the latest first. */
static void sum_over_passes(reducer *r, unfinished *u) {
    tensor_id *counter = r->counter[u->unit];
    for (int level = 0; level < LEVELS; level++) {
        const bool occupied = counter[level] != NO_TENSOR;
        if (!occupied && !is_last(r, u->pass)) {
            counter[level] = u->value;
            return;
        }
        if (occupied)
            u->value = add(r, u, counter[level], u->value);
        counter[level] = NO_TENSOR;
    }
}

/* Takes the next stage; false when it was the last. */
static bool advance(reducer *r, unfinished *u) {
    static void (*const stages[STAGE_COUNT])(reducer * r, unfinished * u) = {[STAGE_GROUP] = sum_in_group,
                                                                             [STAGE_REPLICAS] = sum_over_replicas,
                                                                             [STAGE_WIDEN] = widen,
                                                                             [STAGE_PASSES] = sum_over_passes};
    if (u->stage < STAGE_COUNT)
        stages[u->stage](r, u);
    u->stage = next_stage(r, u->stage + 1, u->pass);
    r->step->gradient[u->unit] = u->value;
    return u->stage < STAGE_COUNT;
}

static void advance_pending(reducer *r) {
    int32_t kept = 0;
    for (int32_t i = 0; i < r->pending_count; i++)
        if (advance(r, &r->pending[i]))
            r->pending[kept++] = r->pending[i];
    r->pending_count = kept;
}

reducer *reducer_create(step *s, const flat_layout *layout, bool reproducible, dtype wire) {
    reducer *r = memory_allocate(1, sizeof *r);
    *r = (reducer){.step = s, .layout = layout, .reproducible = reproducible, .wire = wire};
    r->pending = memory_allocate(STAGE_COUNT, sizeof *r->pending); /* each addition takes every one a stage further */
    r->counter = memory_allocate((size_t)s->units, sizeof *r->counter);
    for (int32_t u = 0; u < s->units; u++)
        for (int level = 0; level < LEVELS; level++)
            r->counter[u][level] = NO_TENSOR;
    return r;
}

void reducer_add(reducer *r, int32_t unit, int64_t pass, tensor_id flat) {
    unfinished u = {.unit = unit, .pass = pass, .value = flat, .stage = next_stage(r, 0, pass)};
    advance_pending(r);
    if (advance(r, &u))
        r->pending[r->pending_count++] = u;
}

void reducer_finish(reducer *r) {
    while (r->pending_count > 0)
        advance_pending(r);
    free(r->pending);
    free(r->counter);
    free(r);
}
