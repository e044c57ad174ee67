#include "support/launches.h"

#include "engine/checked.h"
#include "engine/device/half.h"
#include "engine/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 20240601 };

operand operand_make(dtype type, int64_t rows, int64_t columns) {
    size_t bytes = (size_t)must_multiply(must_multiply(rows, columns), dtype_bytes(type));
    size_t element = (size_t)dtype_bytes(type);
    char *block = memory_allocate(element + bytes, 1);
    return (operand){block + element, type, {rows, columns, 1}};
}

void operand_release(operand *o) {
    if (o->data != NULL)
        free((char *)o->data - dtype_bytes(o->type));
    o->data = NULL;
}

double operand_get(const operand *o, int64_t index) {
    switch (o->type) {
    case DTYPE_F64:
        return ((const double *)o->data)[index];
    case DTYPE_I32:
        return ((const int32_t *)o->data)[index];
    case DTYPE_BF16:
        return (double)float_from_bf16(((const uint16_t *)o->data)[index]);
    case DTYPE_F16:
        return (double)float_from_f16(((const uint16_t *)o->data)[index]);
    default:
        return (double)((const float *)o->data)[index];
    }
}

void operand_set(operand *o, int64_t index, double value) {
    switch (o->type) {
    case DTYPE_F64:
        ((double *)o->data)[index] = value;
        break;
    case DTYPE_I32:
        ((int32_t *)o->data)[index] = (int32_t)value;
        break;
    case DTYPE_BF16:
        ((uint16_t *)o->data)[index] = bf16_from_float((float)value);
        break;
    case DTYPE_F16:
        ((uint16_t *)o->data)[index] = f16_from_float((float)value);
        break;
    default:
        ((float *)o->data)[index] = (float)value;
    }
}

double operand_dot(const operand *a, const operand *b) {
    double total = 0;
    for (int64_t i = 0; i < operand_count(a); i++)
        total += operand_get(a, i) * operand_get(b, i);
    return total;
}

operand operand_random(dtype type, int64_t rows, int64_t columns, double range, uint64_t stream) {
    operand o = operand_make(type, rows, columns);
    for (int64_t i = 0; i < rows * columns; i++)
        operand_set(&o, i, range * (2 * rng_uniform(SEED, stream, (uint64_t)i) - 1));
    return o;
}

operand operand_random_integers(int64_t count, int64_t below, uint64_t stream) {
    operand o = operand_make(DTYPE_I32, count, 1);
    for (int64_t i = 0; i < count; i++)
        operand_set(&o, i, floor((double)below * rng_uniform(SEED, stream, (uint64_t)i)));
    return o;
}

operand operand_of_doubles(const double *values, int64_t count) {
    operand o = operand_make(DTYPE_F64, count, 1);
    memcpy(o.data, values, (size_t)count * sizeof *values);
    return o;
}

operand operand_order(const operand *tokens) {
    operand o = operand_make(DTYPE_I32, operand_count(tokens), 1);
    const int32_t *token = tokens->data;
    int32_t *order = o.data;
    for (int32_t i = 0; i < operand_count(tokens); i++) { /* insertion, which keeps equal tokens in order */
        int32_t at = i;
        for (; at > 0 && token[order[at - 1]] > token[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    return o;
}

/* Whether output o takes the bytes of an input when outputs share; *input says which. */
static bool shares(const launch *l, int o, int *input) {
    *input = operation_signature_of(l->kind)->shares[o];
    return *input >= 0 && l->out[o].data != NULL && l->in[*input].data != NULL;
}

bool launch_can_share(const launch *l) {
    bool any = false;
    for (int o = 0; o < OPERATION_OUTPUTS; o++) {
        int input = 0;
        any = shares(l, o, &input) || any;
    }
    return any;
}

static operand operand_clone(const operand *o, dtype type) {
    if (o->data == NULL)
        return *o;
    operand clone = operand_make(type, o->shape[0], o->shape[1]);
    for (int64_t i = 0; i < operand_count(o); i++)
        operand_set(&clone, i, operand_get(o, i));
    return clone;
}

/* The types that a clone's operands are to have. */
typedef struct clone_types {
    bool by_letter;
    dtype storage, gradient; /* if not by letter: storage of all */
} clone_types;

static dtype type_for(const clone_types *types, const operand *o, char letter) {
    if (o->type == DTYPE_F64 || o->type == DTYPE_I32)
        return o->type;
    if (!types->by_letter || letter == 'A' || letter == 'S')
        return types->storage;
    return letter == 'G' ? types->gradient : o->type;
}

static launch clone_as(const launch *l, const clone_types *types, bool share) {
    const operation_signature *s = operation_signature_of(l->kind);
    launch clone = *l;
    clone.workspace = NULL;
    for (int i = 0; i < OPERATION_INPUTS; i++)
        clone.in[i] = operand_clone(&l->in[i], type_for(types, &l->in[i], s->input_types[i]));
    for (int o = 0; o < OPERATION_OUTPUTS; o++) {
        int input = 0;
        bool shared = share && shares(l, o, &input);
        clone.out[o] =
            shared ? clone.in[input] : operand_clone(&l->out[o], type_for(types, &l->out[o], s->output_types[o]));
    }
    return clone;
}

launch launch_clone(const launch *l, dtype type, bool share) {
    return clone_as(l, &(clone_types){.storage = type}, share);
}

launch launch_store(const launch *l, dtype storage, dtype gradient, bool share) {
    return clone_as(l, &(clone_types){true, storage, gradient}, share);
}

void launch_release(launch *l) {
    for (int o = 0; o < OPERATION_OUTPUTS; o++) {
        bool shared = false;
        for (int i = 0; i < OPERATION_INPUTS; i++)
            shared = shared || l->in[i].data == l->out[o].data;
        if (!shared)
            operand_release(&l->out[o]);
    }
    for (int i = 0; i < OPERATION_INPUTS; i++)
        operand_release(&l->in[i]);
}

/* The error of rounding `value` to a format of 16 bits, at most. */
static double storing_error(dtype type, double value) {
    const double least = 0x1p-25; /* half of what fp16's numbers below 2^-14 are apart */
    if (type == DTYPE_F16)
        return fmax(0x1p-11 * fabs(value), least);
    return type == DTYPE_BF16 ? 0x1p-8 * fabs(value) : 0;
}

void launch_compare(const launch *got, const launch *want, int o, accuracy near, const char *where) {
    const operand *a = &got->out[o], *b = &want->out[o];
    double unit = a->type == DTYPE_F64 ? 0x1p-53 : 0x1p-24, largest = 0;
    for (int64_t i = 0; i < operand_count(b); i++)
        if (isfinite(operand_get(b, i)))
            largest = fmax(largest, fabs(operand_get(b, i)));
    for (int64_t i = 0; i < operand_count(b); i++) {
        double x = operand_get(a, i), y = operand_get(b, i);
        double allowed = unit * (near.relative * fabs(y) + near.spread * largest + near.absolute);
        allowed += storing_error(a->type, fabs(y) + allowed);
        bool same = isfinite(y) ? fabs(x - y) <= allowed : (isnan(x) && isnan(y)) || x == y;
        if (!same)
            fail_msg("%s, %s[%lld]: %.9g instead of %.9g: %.3g apart, allowed %.3g", where,
                     operation_signature_of(got->kind)->outputs[o], (long long)i, x, y, fabs(x - y), allowed);
    }
}
