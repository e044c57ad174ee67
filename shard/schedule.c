#include "shard/schedule.h"

#include "engine/checked.h"
#include "engine/device/update.h"
#include "engine/error.h"
#include "engine/turn.h"
#include "shard/reducer.h"

#include <stdlib.h>

/* A turn of the micro-batch's program in one of the passes. */
typedef struct unrolled_turn {
    turn turn;       /* positions are the micro-batch's */
    bool reads;      /* uses the unit's parameters */
    tensor_id whole; /* the gathered parameters that it reads, once they are gathered */
    int64_t same_as; /* turn whose gathered parameters it uses: its own number, or an earlier one */
} unrolled_turn;

enum { NO_TURN = -1 };

typedef struct scheduler {
    const program *micro; /* of one micro-batch: what the step is made from */
    const parameter_list *list;
    const flat_layout *layout;
    const schedule_settings *settings;
    step *step;
    program *p;
    unrolled_turn *turns;
    int64_t turn_count;
    int64_t current;  /* turn of the operation being written; NO_TURN before the first */
    int64_t gathered; /* turns before this number have had their gathers issued */
    int64_t pass;
    tensor_id *map;           /* [micro tensors]: their tensor in this pass */
    tensor_id *flat_gradient; /* [units]: in this pass */
    int32_t *last_write;      /* [units]: micro operation that writes the unit's gradient last; NO_OPERATION */
    reducer *reducer;
} scheduler;

static tensor_id named_tensor(scheduler *s, const char *what, int32_t unit, tensor_role role, dtype type,
                              int64_t elements) {
    char *name = memory_format("%s.%s", s->micro->unit_names[unit], what);
    tensor_id t = program_tensor(s->p, name, role, type, 1, &elements);
    s->p->tensors[t].unit = unit;
    free(name);
    return t;
}

/* ---- persistent tensors ---- */

static void persistent_tensors(scheduler *s) {
    step *made = s->step;
    for (int32_t u = 0; u < made->units; u++)
        made->master[u] = named_tensor(s, "master", u, ROLE_MASTER, DTYPE_F32, s->layout->units[u].shard);
    for (int32_t u = 0; u < made->units && s->settings->optimizer; u++) {
        made->first_moment[u] = named_tensor(s, "first_moment", u, ROLE_MOMENT, DTYPE_F32, s->layout->units[u].shard);
        made->second_moment[u] = named_tensor(s, "second_moment", u, ROLE_MOMENT, DTYPE_F32, s->layout->units[u].shard);
    }
    if (s->settings->optimizer)
        made->update_count = program_tensor(s->p, "update_count", ROLE_MOMENT, DTYPE_F64, 1, (int64_t[]){1});
    if (s->settings->optimizer && s->settings->precision.loss_scale > 0)
        made->loss_scale = program_tensor(s->p, "loss_scale", ROLE_MOMENT, DTYPE_F64, 1, (int64_t[]){LOSS_SCALE_COUNT});
    for (tensor_id t = 0; t < s->micro->tensor_count; t++) {
        const tensor *x = &s->micro->tensors[t];
        if (x->role == ROLE_MOMENT)
            s->map[t] = made->loss_scale;
        if (x->role == ROLE_CONSTANT)
            s->map[t] = program_tensor(s->p, x->name, ROLE_CONSTANT, x->type, OPERAND_DIMENSIONS, x->shape);
    }
}

static bool has_gradients(const program *micro) {
    for (tensor_id t = 0; t < micro->tensor_count; t++)
        if (micro->tensors[t].role == ROLE_GRADIENT)
            return true;
    return false;
}

/* What a rank tells the others: squares of gradients, if there are any (validation has none), and a loss per pass. */
static void contribution_tensor(scheduler *s) {
    s->step->loss_column = has_gradients(s->micro) ? s->layout->columns : 0;
    const int64_t columns = s->step->loss_column + s->settings->passes;
    s->step->contributions = program_tensor(s->p, "contributions", ROLE_RESULT, DTYPE_F64, 1, &columns);
}

/* ---- turns ---- */

static bool reads_parameters(const program *micro, const turn *t) {
    for (int32_t i = t->first; i <= t->last; i++)
        for (int k = 0; k < OPERATION_INPUTS; k++) {
            const operation *o = &micro->operations[i];
            if (o->stream == STREAM_COMPUTE && o->in[k] != NO_TENSOR && micro->tensors[o->in[k]].role == ROLE_PARAMETER)
                return true;
        }
    return false;
}

static void unroll_turns(scheduler *s) {
    int32_t count;
    turn *once = turns_of(s->micro, &count);
    s->turns = memory_allocate((size_t)(s->settings->passes * count), sizeof *s->turns);
    for (int64_t pass = 0; pass < s->settings->passes; pass++)
        for (int32_t t = 0; t < count; t++) {
            unrolled_turn *now = &s->turns[s->turn_count];
            *now = (unrolled_turn){once[t], reads_parameters(s->micro, &once[t]), NO_TENSOR, s->turn_count++};
            now->turn.pass = (int32_t)pass;
        }
    free(once);
}

/* Whether a later turn of a unit reads what an earlier one gathered: always when parameters are kept; a tied root is
 * whole from the embedding until the head of its pass. */
static bool stays_whole(const scheduler *s, const unrolled_turn *earlier, const unrolled_turn *later) {
    return s->settings->keep_gathered || (later->turn.unit == 0 && earlier->turn.pass == later->turn.pass);
}

static void share_gathers(scheduler *s) {
    int64_t *gathered_by = memory_allocate((size_t)s->step->units, sizeof *gathered_by); /* turn number + 1 */
    for (int64_t t = 0; t < s->turn_count; t++) {
        unrolled_turn *now = &s->turns[t];
        if (!now->reads)
            continue;
        const int64_t earlier = gathered_by[now->turn.unit] - 1;
        if (earlier >= 0 && stays_whole(s, &s->turns[earlier], now))
            now->same_as = earlier;
        else
            gathered_by[now->turn.unit] = t + 1;
    }
    free(gathered_by);
}

static operation for_turn(const scheduler *s, operation_kind kind, const turn *t) {
    operation o = operation_make(kind, s->micro->operations[t->first].phase, t->unit);
    o.pass = t->pass;
    return o;
}

/* The turn's unit of this rank's master, in the storage that parameters are gathered in. */
static tensor_id round_shard(scheduler *s, const turn *t) {
    const bool last = s->layout->group_size == 1; /* nothing is left to gather */
    operation o = for_turn(s, OPERATION_CAST, t);
    o.in[0] = s->step->master[t->unit];
    o.out[0] = named_tensor(s, last ? "gathered" : "rounded", t->unit, last ? ROLE_GATHERED : ROLE_ROUNDED,
                            s->settings->precision.storage, s->layout->units[t->unit].shard);
    program_append(s->p, &o);
    return o.out[0];
}

static tensor_id gather(scheduler *s, const turn *t, tensor_id shard) {
    operation o = for_turn(s, OPERATION_ALL_GATHER, t);
    o.stream = STREAM_GATHER;
    o.attributes.group = GROUP_SHARD;
    o.in[0] = shard;
    o.out[0] = named_tensor(s, "gathered", t->unit, ROLE_GATHERED, s->settings->precision.storage,
                            s->layout->units[t->unit].whole);
    program_append(s->p, &o);
    return o.out[0];
}

/* In a shard group of one the master is whole already. */
static void make_whole(scheduler *s, int64_t index) {
    unrolled_turn *t = &s->turns[index];
    if (!t->reads || t->same_as != index)
        return;
    t->whole = s->step->master[t->turn.unit];
    if (s->settings->precision.storage != DTYPE_F32)
        t->whole = round_shard(s, &t->turn);
    if (s->layout->group_size > 1)
        t->whole = gather(s, &t->turn, t->whole);
}

/* A new turn begins: issues the gathers of the turns up to `prefetch` ahead. A cast alone gains nothing by coming
 * earlier. */
static void begin_turn(scheduler *s, int64_t index) {
    s->current = index;
    const int64_t ahead = s->layout->group_size > 1 ? s->settings->prefetch : 0;
    const int64_t until = minimum(index + ahead + 1, s->turn_count);
    for (; s->gathered < until; s->gathered++)
        make_whole(s, s->gathered);
}

/* ---- tensors of a pass ---- */

/* Whether each pass has flat gradients of its own, to be reduced, rather than adding to those of the first. In a shard
 * group of one that would save no memory: what is left of a reduction is as large as what went in. */
static bool reduces_each(const scheduler *s) {
    return s->settings->reproducible || (s->settings->reduce_each && s->layout->group_size > 1);
}

/* A parameter or its gradient as a view of its unit's flat tensor. */
static tensor_id view_in_flat(scheduler *s, tensor_id flat, const tensor *x) {
    const int64_t offset = s->layout->offsets[x->parameter] * dtype_bytes(x->type);
    tensor_id t = program_view(s->p, x->name, flat, offset, OPERAND_DIMENSIONS, x->shape);
    s->p->tensors[t].parameter = x->parameter;
    s->p->tensors[t].role = x->role;
    return t;
}

/* Between the parameters of a unit, and behind the last. */
static void declare_padding(scheduler *s, int32_t unit, tensor_id flat) {
    const flat_unit *u = &s->layout->units[unit];
    const int64_t size = dtype_bytes(s->p->tensors[flat].type);
    int64_t end = 0;
    for (int32_t i = u->first_parameter; i < u->first_parameter + u->parameters; i++) {
        program_padding(s->p, flat, end * size, (s->layout->offsets[i] - end) * size);
        end = s->layout->offsets[i] + parameter_elements(&s->list->items[i]);
    }
    program_padding(s->p, flat, end * size, (u->whole - end) * size);
}

static tensor_id flat_gradient(scheduler *s, int32_t unit) {
    if (s->flat_gradient[unit] == NO_TENSOR) {
        const bool final = s->settings->ranks == 1 && !reduces_each(s); /* nothing is left to sum */
        s->flat_gradient[unit] = named_tensor(s, final ? "gradient_shard" : "flat_gradient", unit,
                                              final ? ROLE_GRADIENT_SHARD : ROLE_FLAT_GRADIENT,
                                              s->settings->precision.gradient, s->layout->units[unit].whole);
        declare_padding(s, unit, s->flat_gradient[unit]);
    }
    return s->flat_gradient[unit];
}

/* A view of what the turn gathered, one for all its readers. */
static tensor_id parameter_view(scheduler *s, tensor_id t) {
    const tensor_id whole = s->turns[s->turns[s->current].same_as].whole;
    if (s->map[t] == NO_TENSOR || program_base(s->p, s->map[t]) != whole)
        s->map[t] = view_in_flat(s, whole, &s->micro->tensors[t]);
    return s->map[t];
}

static tensor_id mapped(scheduler *s, tensor_id t) {
    if (t == NO_TENSOR)
        return NO_TENSOR;
    const tensor *x = &s->micro->tensors[t];
    if (x->role == ROLE_PARAMETER)
        return parameter_view(s, t);
    if (s->map[t] != NO_TENSOR)
        return s->map[t];
    if (x->role == ROLE_GRADIENT)
        s->map[t] = view_in_flat(s, flat_gradient(s, x->unit), x);
    else if (x->role == ROLE_RESULT)
        s->map[t] = program_view(s->p, x->name, s->step->contributions,
                                 (s->step->loss_column + s->pass) * dtype_bytes(DTYPE_F64), 1, x->shape);
    else if (x->base != NO_TENSOR)
        s->map[t] = program_view(s->p, x->name, mapped(s, x->base), x->offset, OPERAND_DIMENSIONS, x->shape);
    else
        s->map[t] = program_tensor(s->p, x->name, x->role, x->type, OPERAND_DIMENSIONS, x->shape);
    return s->map[t];
}

/* Forgets the tensors of the last pass; what outlives it stays. */
static void begin_pass(scheduler *s, int64_t pass) {
    s->pass = pass;
    for (tensor_id t = 0; t < s->micro->tensor_count; t++) {
        const tensor_role role = s->micro->tensors[t].role;
        const bool stays = role == ROLE_CONSTANT || role == ROLE_MOMENT ||
                           (role == ROLE_GRADIENT && !reduces_each(s)) ||
                           (s->map[t] != NO_TENSOR && s->map[t] == s->step->scalars);
        if (!stays)
            s->map[t] = NO_TENSOR;
    }
    for (int32_t u = 0; u < s->step->units && reduces_each(s); u++)
        s->flat_gradient[u] = NO_TENSOR;
}

/* ---- operations of a pass ---- */

/* In later passes what was overwritten is added to, and what was filled needs no second fill: then false. */
static bool accumulate_over_passes(const scheduler *s, const operation *source, operation *o) {
    if (s->pass == 0 || reduces_each(s))
        return true;
    for (int k = 0; k < OPERATION_OUTPUTS; k++)
        if (source->out[k] != NO_TENSOR && s->micro->tensors[source->out[k]].role == ROLE_GRADIENT) {
            if (o->kind == OPERATION_FILL)
                return false;
            o->accumulate |= 1u << k;
        }
    return true;
}

static void host_place(const scheduler *s, operation *o) {
    const tensor *x = &s->p->tensors[o->out[0]];
    o->attributes.host_offset = o->attributes.host == HOST_SCALARS ? 0 : s->pass * x->bytes;
}

static void write_operation(scheduler *s, const operation *source) {
    operation o = *source;
    o.pass = (int32_t)s->pass;
    if (!accumulate_over_passes(s, source, &o))
        return;
    if (o.kind == OPERATION_COPY_IN && o.attributes.host == HOST_SCALARS && s->pass > 0)
        return; /* one for all passes */
    for (int k = 0; k < OPERATION_INPUTS; k++)
        o.in[k] = mapped(s, source->in[k]);
    for (int k = 0; k < OPERATION_OUTPUTS; k++)
        o.out[k] = mapped(s, source->out[k]);
    if (o.kind == OPERATION_COPY_IN)
        host_place(s, &o);
    if (o.kind == OPERATION_COPY_IN && o.attributes.host == HOST_SCALARS)
        s->step->scalars = o.out[0];
    program_append(s->p, &o);
}

static void write_pass(scheduler *s, int64_t pass) {
    const int32_t count = s->micro->operation_count;
    begin_pass(s, pass);
    for (int32_t i = 0; i < count; i++) {
        const int64_t next = s->current + 1;
        if (next < s->turn_count && s->turns[next].turn.pass == pass && s->turns[next].turn.first == i)
            begin_turn(s, next);
        write_operation(s, &s->micro->operations[i]);
        const int32_t u = s->micro->operations[i].unit;
        if (u != NO_UNIT && s->last_write[u] == i && (reduces_each(s) || pass + 1 == s->settings->passes))
            reducer_add(s->reducer, u, pass, s->flat_gradient[u]);
    }
}

/* ---- the whole step ---- */

static void find_last_writes(scheduler *s) {
    for (int32_t u = 0; u < s->step->units; u++)
        s->last_write[u] = NO_OPERATION;
    for (int32_t i = 0; i < s->micro->operation_count; i++)
        for (int k = 0; k < OPERATION_OUTPUTS; k++) {
            const operation *o = &s->micro->operations[i];
            if (o->out[k] == NO_TENSOR || s->micro->tensors[o->out[k]].role != ROLE_GRADIENT)
                continue;
            check(s->micro->tensors[o->out[k]].unit == o->unit, "operation %d writes another unit's gradient", i);
            s->last_write[o->unit] = i;
        }
}

static tensor_id *no_tensors(int32_t count) {
    tensor_id *ids = memory_allocate((size_t)count, sizeof *ids);
    for (int32_t i = 0; i < count; i++)
        ids[i] = NO_TENSOR;
    return ids;
}

static step *step_create(const program *micro, const schedule_settings *settings) {
    step *made = memory_allocate(1, sizeof *made);
    const int32_t units = micro->unit_count;
    *made = (step){.program = program_create(units, (const char *const *)micro->unit_names),
                   .units = units,
                   .passes = settings->passes,
                   .ranks = settings->ranks,
                   .master = no_tensors(units),
                   .first_moment = no_tensors(units),
                   .second_moment = no_tensors(units),
                   .gradient = no_tensors(units),
                   .update_count = NO_TENSOR,
                   .loss_scale = NO_TENSOR,
                   .scalars = NO_TENSOR,
                   .contributions = NO_TENSOR};
    return made;
}

step *shard_schedule(const program *micro, const parameter_list *list, const flat_layout *layout,
                     const schedule_settings *settings) {
    scheduler s = {.micro = micro,
                   .list = list,
                   .layout = layout,
                   .settings = settings,
                   .step = step_create(micro, settings),
                   .current = NO_TURN,
                   .map = no_tensors(micro->tensor_count),
                   .flat_gradient = no_tensors(micro->unit_count),
                   .last_write = memory_allocate((size_t)micro->unit_count, sizeof(int32_t))};
    s.p = s.step->program;
    s.reducer = reducer_create(s.step, layout, settings->reproducible, settings->precision.wire);
    persistent_tensors(&s);
    find_last_writes(&s);
    contribution_tensor(&s);
    unroll_turns(&s);
    share_gathers(&s);
    for (int64_t pass = 0; pass < settings->passes; pass++)
        write_pass(&s, pass);
    reducer_finish(s.reducer);
    free(s.turns);
    free(s.map);
    free(s.flat_gradient);
    free(s.last_write);
    return s.step;
}
