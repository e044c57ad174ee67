#include "cuda/launches.h"

#include "engine/device/reference/reference.h"
#include "engine/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

size_t cuda_operand_bytes(const operand *o) {
    return (size_t)(operand_count(o) * dtype_bytes(o->type));
}

/* ---- copies on host memory ---- */

static operand operand_as(const operand *o, dtype type) {
    if (o->data == NULL)
        return *o;
    operand copy = operand_make(type, o->shape[0], o->shape[1]);
    for (int64_t i = 0; i < operand_count(o); i++)
        operand_set(&copy, i, operand_get(o, i));
    return copy;
}

static dtype type_of(char letter, dtype type, dtype activations, dtype gradients) {
    return letter == 'A' ? activations : letter == 'G' ? gradients : type;
}

launch cuda_launch_copy(const launch *l) {
    launch copy = *l;
    for (int i = 0; i < OPERATION_INPUTS; i++)
        copy.in[i] = operand_as(&l->in[i], l->in[i].type);
    for (int o = 0; o < OPERATION_OUTPUTS; o++)
        copy.out[o] = operand_as(&l->out[o], l->out[o].type);
    return copy;
}

launch cuda_launch_typed(const launch *l, dtype activations, dtype gradients) {
    const operation_signature *s = operation_signature_of(l->kind);
    launch copy = *l;
    for (int i = 0; i < OPERATION_INPUTS; i++)
        copy.in[i] = operand_as(&l->in[i], type_of(s->input_types[i], l->in[i].type, activations, gradients));
    for (int o = 0; o < OPERATION_OUTPUTS; o++)
        copy.out[o] = operand_as(&l->out[o], type_of(s->output_types[o], l->out[o].type, activations, gradients));
    return copy;
}

launch cuda_launch_reference(const launch *l) {
    launch copy = *l;
    for (int i = 0; i < OPERATION_INPUTS; i++)
        copy.in[i] = operand_as(&l->in[i], l->in[i].type == DTYPE_I32 ? DTYPE_I32 : DTYPE_F64);
    for (int o = 0; o < OPERATION_OUTPUTS; o++)
        copy.out[o] = operand_as(&l->out[o], DTYPE_F64);
    reference_launch_f64(&copy);
    return copy;
}

/* ---- comparison ---- */

/* Roundoff of a type, and of its subnormal numbers. */
static double roundoff(dtype type) {
    return type == DTYPE_F64 ? 0x1p-53 : type == DTYPE_BF16 ? 0x1p-8 : type == DTYPE_F16 ? 0x1p-11 : 0x1p-24;
}

static double largest_of(const operand *o) {
    double largest = 0;
    for (int64_t i = 0; i < operand_count(o); i++)
        if (isfinite(operand_get(o, i)))
            largest = fmax(largest, fabs(operand_get(o, i)));
    return largest;
}

void cuda_launch_compare(const launch *got, const launch *want, int o, accuracy near, const char *where) {
    const operand *a = &got->out[o], *b = &want->out[o];
    bool narrow = a->type == DTYPE_BF16 || a->type == DTYPE_F16;
    double unit = roundoff(narrow ? DTYPE_F32 : a->type), largest = largest_of(b);
    for (int64_t i = 0; i < operand_count(b); i++) {
        double x = operand_get(a, i), y = operand_get(b, i);
        double allowed = unit * (near.relative * fabs(y) + near.spread * largest + near.absolute);
        if (narrow) /* rounded once, from a value that is off by the above */
            allowed += roundoff(a->type) * (fabs(y) + allowed) + (a->type == DTYPE_F16 ? 0x1p-25 : 0);
        bool same = isfinite(y) ? fabs(x - y) <= allowed : (isnan(x) && isnan(y)) || x == y;
        if (!same)
            fail_msg("%s, %s[%lld]: %.9g instead of %.9g: %.3g apart, allowed %.3g", where,
                     operation_signature_of(got->kind)->outputs[o], (long long)i, x, y, fabs(x - y), allowed);
    }
}
