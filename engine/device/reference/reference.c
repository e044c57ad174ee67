#include "engine/device/reference/reference.h"

#include "engine/error.h"

/* The operand whose format says in which precision the operation is meant. */
static const operand *precision_operand(const launch *l) {
    switch (l->kind) {
    case OPERATION_SUM:
    case OPERATION_GRANULE_NORM: /* their results are always fp64 */
        return &l->in[0];
    default:
        return &l->out[0];
    }
}

void reference_launch(const launch *l) {
    const operand *o = precision_operand(l);
    check(o->type == DTYPE_F32 || o->type == DTYPE_F64, "%s in %s has no reference kernel",
          operation_signature_of(l->kind)->name, dtype_name(o->type));
    if (o->type == DTYPE_F32)
        reference_launch_f32(l);
    else
        reference_launch_f64(l);
}
