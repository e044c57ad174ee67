#include "optim/adamw.h"

#include "engine/checked.h"
#include "engine/device/update.h"

#include <stdlib.h>

static void granule_norms(step *s, const parameter_list *list, const flat_layout *layout) {
    program *p = s->program;
    for (int32_t u = 0; u < s->units; u++) {
        const flat_unit *unit = &layout->units[u];
        operation o = operation_make(OPERATION_GRANULE_NORM, PHASE_UPDATE, u);
        o.attributes.segments = program_own(p, flat_segments(layout, list, u, &o.attributes.segment_count));
        o.attributes.granule = unit->granule;
        o.in[0] = s->gradient[u];
        o.out[0] =
            program_view(p, "squares", s->contributions, unit->column * dtype_bytes(DTYPE_F64), 1, &unit->per_rank);
        program_append(p, &o);
    }
}

/* Every rank's contributions, [ranks, c]. */
static tensor_id gather_contributions(step *s) {
    program *p = s->program;
    const int64_t shape[] = {s->ranks, p->tensors[s->contributions].shape[0]};
    if (s->ranks == 1)
        return program_view(p, "all_contributions", s->contributions, 0, 2, shape);
    operation o = operation_make(OPERATION_ALL_GATHER, PHASE_UPDATE, NO_UNIT);
    o.stream = STREAM_REDUCE;
    o.attributes.group = GROUP_WORLD;
    o.in[0] = s->contributions;
    o.out[0] = program_tensor(p, "all_contributions", ROLE_RESULT, DTYPE_F64, 2, shape);
    program_append(p, &o);
    return o.out[0];
}

static granule_columns *columns_of(const step *s, const flat_layout *layout) {
    granule_columns *columns = memory_allocate((size_t)s->units, sizeof *columns);
    for (int32_t u = 0; u < s->units; u++) {
        const flat_unit *unit = &layout->units[u];
        columns[u] = (granule_columns){unit->granules, unit->per_rank, unit->column};
    }
    return columns;
}

static tensor_id result(step *s, const flat_layout *layout, const optimizer_settings *settings,
                        tensor_id contributions) {
    program *p = s->program;
    operation o = operation_make(OPERATION_STEP_RESULT, PHASE_UPDATE, NO_UNIT);
    o.attributes.columns = program_own(p, columns_of(s, layout));
    o.attributes.column_count = s->units;
    o.attributes.group_size = layout->group_size;
    o.attributes.loss_column = s->loss_column;
    o.attributes.passes = s->passes;
    o.attributes.clip = settings->clip;
    o.attributes.loss_scale_interval = settings->loss_scale_interval;
    o.in[0] = contributions;
    o.in[1] = s->scalars;
    o.out[0] = program_tensor(p, "result", ROLE_RESULT, DTYPE_F64, 1, (int64_t[]){RESULT_COUNT});
    o.out[1] = s->update_count;
    o.out[2] = s->loss_scale;
    o.accumulate = 1u << 1 | (s->loss_scale != NO_TENSOR ? 1u << 2 : 0);
    program_append(p, &o);
    return o.out[0];
}

static void updates(step *s, const parameter_list *list, const flat_layout *layout, const optimizer_settings *settings,
                    tensor_id step_result) {
    for (int32_t u = 0; u < s->units; u++) {
        operation o = operation_make(OPERATION_ADAMW, PHASE_UPDATE, u);
        o.attributes.segments = program_own(s->program, flat_segments(layout, list, u, &o.attributes.segment_count));
        o.attributes.beta_first = settings->beta_first;
        o.attributes.beta_second = settings->beta_second;
        o.attributes.epsilon = settings->epsilon;
        o.attributes.weight_decay = settings->weight_decay;
        o.in[0] = s->gradient[u];
        o.in[1] = s->scalars;
        o.in[2] = step_result;
        o.in[3] = s->update_count;
        o.out[0] = s->master[u];
        o.out[1] = s->first_moment[u];
        o.out[2] = s->second_moment[u];
        o.accumulate = 1u << 0 | 1u << 1 | 1u << 2;
        program_append(s->program, &o);
    }
}

static void copy_out(step *s, tensor_id t) {
    operation o = operation_make(OPERATION_COPY_OUT, PHASE_UPDATE, NO_UNIT);
    o.stream = STREAM_COPY;
    o.attributes.host = HOST_RESULT;
    o.in[0] = t;
    program_append(s->program, &o);
}

void optimizer_append(step *s, const parameter_list *list, const flat_layout *layout,
                      const optimizer_settings *settings) {
    granule_norms(s, list, layout);
    const tensor_id step_result = result(s, layout, settings, gather_contributions(s));
    updates(s, list, layout, settings, step_result);
    copy_out(s, step_result);
}

void validation_append(step *s) {
    copy_out(s, gather_contributions(s));
}
