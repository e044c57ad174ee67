#include "engine/program.h"

#include "engine/checked.h"
#include "engine/error.h"

#include <stdlib.h>
#include <string.h>

const char *stream_name(stream s) {
    static const char *const names[STREAM_COUNT] = {"compute", "gather", "reduce", "copy"};
    return names[s];
}

const char *phase_name(phase p) {
    static const char *const names[PHASE_COUNT] = {"forward", "backward", "update"};
    return names[p];
}

const char *tensor_role_name(tensor_role role) {
    static const char *const names[ROLE_COUNT] = {
        "master weights",      "moments",   "constants",      "parameters",     "rounded shards",
        "gathered parameters", "gradients", "flat gradients", "gradient shard", "activations",
        "workspace",           "inputs",    "results"};
    return names[role];
}

program *program_create(int32_t units, const char *const *unit_names) {
    program *p = memory_allocate(1, sizeof *p);
    p->unit_count = units;
    p->unit_names = memory_allocate((size_t)units, sizeof *p->unit_names);
    for (int32_t u = 0; u < units; u++)
        p->unit_names[u] = memory_copy_string(unit_names[u]);
    return p;
}

void program_destroy(program *p) {
    if (p == NULL)
        return;
    for (int32_t t = 0; t < p->tensor_count; t++)
        free(p->tensors[t].name);
    for (int32_t u = 0; u < p->unit_count; u++)
        free(p->unit_names[u]);
    for (int32_t i = 0; i < p->owned_count; i++)
        free(p->owned[i]);
    free(p->tensors);
    free(p->operations);
    free(p->padding);
    free(p->unit_names);
    free(p->owned);
    free(p);
}

/* Room for one more item in a growing array. */
static void *reserve(void *items, int32_t count, int32_t *capacity, size_t size) {
    if (count < *capacity)
        return items;
    *capacity = *capacity > 0 ? 2 * *capacity : 64;
    return memory_grow(items, (size_t)*capacity, size);
}

static tensor *new_tensor(program *p, const char *name, int dimensions, const int64_t *shape, dtype type) {
    p->tensors = reserve(p->tensors, p->tensor_count, &p->tensor_capacity, sizeof *p->tensors);
    tensor *t = &p->tensors[p->tensor_count++];
    *t = (tensor){.name = memory_copy_string(name),
                  .type = type,
                  .base = NO_TENSOR,
                  .unit = NO_UNIT,
                  .parameter = -1,
                  .block = -1,
                  .address = -1};
    check(dimensions >= 1 && dimensions <= OPERAND_DIMENSIONS, "tensor %s has %d dimensions", name, dimensions);
    t->bytes = dtype_bytes(type);
    for (int i = 0; i < OPERAND_DIMENSIONS; i++) {
        t->shape[i] = i < dimensions ? shape[i] : 1;
        check(t->shape[i] > 0, "tensor %s has size %lld in dimension %d", name, (long long)t->shape[i], i);
        t->bytes = must_multiply(t->bytes, t->shape[i]);
    }
    return t;
}

tensor_id program_tensor(program *p, const char *name, tensor_role role, dtype type, int dimensions,
                         const int64_t *shape) {
    tensor *t = new_tensor(p, name, dimensions, shape, type);
    t->role = role;
    t->persistent = role == ROLE_MASTER || role == ROLE_MOMENT || role == ROLE_CONSTANT;
    return p->tensor_count - 1;
}

tensor_id program_view(program *p, const char *name, tensor_id of, int64_t offset, int dimensions,
                       const int64_t *shape) {
    const tensor source = p->tensors[of];
    tensor *t = new_tensor(p, name, dimensions, shape, source.type);
    check(offset >= 0 && offset + t->bytes <= source.bytes, "view %s leaves %s", name, source.name);
    t->role = source.role;
    t->base = source.base == NO_TENSOR ? of : source.base;
    t->offset = source.offset + offset;
    t->unit = source.unit;
    t->persistent = source.persistent;
    return p->tensor_count - 1;
}

tensor_id program_base(const program *p, tensor_id t) {
    return p->tensors[t].base == NO_TENSOR ? t : p->tensors[t].base;
}

void program_padding(program *p, tensor_id t, int64_t offset, int64_t bytes) {
    if (bytes == 0)
        return;
    const padding *last = p->padding_count > 0 ? &p->padding[p->padding_count - 1] : NULL;
    check(last == NULL || last->tensor < t || (last->tensor == t && last->offset + last->bytes <= offset),
          "padding of %s is out of order", p->tensors[t].name);
    p->padding = reserve(p->padding, p->padding_count, &p->padding_capacity, sizeof *p->padding);
    p->padding[p->padding_count++] = (padding){t, offset, bytes};
}

operation operation_make(operation_kind kind, phase when, int32_t unit) {
    operation o = {
        .kind = kind, .stream = STREAM_COMPUTE, .phase = when, .unit = unit, .chunk = NO_CHUNK, .workspace = NO_TENSOR};
    for (int i = 0; i < OPERATION_INPUTS; i++)
        o.in[i] = NO_TENSOR;
    for (int i = 0; i < OPERATION_OUTPUTS; i++)
        o.out[i] = NO_TENSOR;
    for (int s = 0; s < STREAM_COUNT; s++)
        o.wait[s] = o.release[s] = NO_OPERATION;
    return o;
}

static operand operand_of(const program *p, tensor_id id, char *arena) {
    if (id == NO_TENSOR)
        return (operand){.shape = {1, 1, 1}};
    const tensor *t = &p->tensors[id];
    operand o = {.data = (void *)1, .type = t->type};
    memcpy(o.shape, t->shape, sizeof o.shape);
    if (arena != NULL)
        o.data = arena + t->address;
    return o;
}

launch program_launch(const program *p, const operation *o, void *arena) {
    launch l = {.kind = o->kind, .attributes = o->attributes, .accumulate = o->accumulate};
    for (int i = 0; i < OPERATION_INPUTS; i++)
        l.in[i] = operand_of(p, o->in[i], arena);
    for (int i = 0; i < OPERATION_OUTPUTS; i++)
        l.out[i] = operand_of(p, o->out[i], arena);
    l.workspace = o->workspace == NO_TENSOR ? NULL : operand_of(p, o->workspace, arena).data;
    return l;
}

/* ---- operations that fit ---- */

static bool has_operands(const program *p, const operation_signature *s, const char *const *names, uint32_t optional,
                         const tensor_id *ids, int count, error *e) {
    for (int k = 0; k < count; k++) {
        const bool present = ids[k] != NO_TENSOR;
        if (!present && names[k] != NULL && !(optional >> k & 1))
            return error_set(e, EXIT_INTERNAL, "%s lacks its operand %s", s->name, names[k]);
        if (present && (names[k] == NULL || ids[k] < 0 || ids[k] >= p->tensor_count))
            return error_set(e, EXIT_INTERNAL, "%s has an operand too many: tensor %d", s->name, ids[k]);
    }
    return true;
}

/* The tensor at a place: inputs, then outputs. */
static const tensor *tensor_at(const program *p, const operation *o, int place) {
    return &p->tensors[place < OPERATION_INPUTS ? o->in[place] : o->out[place - OPERATION_INPUTS]];
}

static const char *name_at(const operation_signature *s, int place) {
    return place < OPERATION_INPUTS ? s->inputs[place] : s->outputs[place - OPERATION_INPUTS];
}

static bool has_types(const program *p, const operation *o, const launch *l, error *e) {
    const operation_signature *s = operation_signature_of(o->kind);
    const int place = operation_wrong_type(l);
    if (place < 0)
        return true;
    const tensor *x = tensor_at(p, o, place);
    const char letter = place < OPERATION_INPUTS ? s->input_types[place] : s->output_types[place - OPERATION_INPUTS];
    return error_set(e, EXIT_INTERNAL,
                     "%s: %s as its operand %s is %s, which its type %c does not allow beside the others", s->name,
                     x->name, name_at(s, place), dtype_name(x->type), letter);
}

static bool has_shapes(const program *p, const operation *o, const launch *l, error *e) {
    const operation_signature *s = operation_signature_of(o->kind);
    int64_t expected[OPERAND_DIMENSIONS];
    const int place = operation_wrong_shape(l, expected);
    if (place < 0)
        return true;
    const tensor *x = tensor_at(p, o, place);
    return error_set(e, EXIT_INTERNAL,
                     "%s: %s as its operand %s is %lld x %lld x %lld, expected %lld x %lld x %lld (0: any)", s->name,
                     x->name, name_at(s, place), (long long)x->shape[0], (long long)x->shape[1], (long long)x->shape[2],
                     (long long)expected[0], (long long)expected[1], (long long)expected[2]);
}

bool program_accepts(const program *p, const operation *o, error *e) {
    const operation_signature *s = operation_signature_of(o->kind);
    if (!has_operands(p, s, s->inputs, s->optional_inputs, o->in, OPERATION_INPUTS, e) ||
        !has_operands(p, s, s->outputs, s->optional_outputs, o->out, OPERATION_OUTPUTS, e))
        return false;
    if ((o->accumulate & ~s->accumulates) != 0)
        return error_set(e, EXIT_INTERNAL, "%s cannot add to its output", s->name);
    const launch l = program_launch(p, o, NULL);
    return has_types(p, o, &l, e) && has_shapes(p, o, &l, e);
}

int32_t program_append(program *p, const operation *o) {
    error e = {0};
    check(program_accepts(p, o, &e), "%s", e.message);
    p->operations = reserve(p->operations, p->operation_count, &p->operation_capacity, sizeof *p->operations);
    p->operations[p->operation_count] = *o;
    return p->operation_count++;
}

void *program_own(program *p, void *allocated) {
    p->owned = memory_grow(p->owned, (size_t)p->owned_count + 1, sizeof *p->owned);
    p->owned[p->owned_count++] = allocated;
    return allocated;
}
