/* Source of the reference kernels, included once with `real` float and once with `real` double. */
#include "engine/device/reference/reference.h"
#include "engine/device/update.h"
#include "engine/error.h"

#include <math.h>

/* Whether output o adds to what is there. */
static bool adds(const launch *l, int o) {
    return (l->accumulate >> o & 1) != 0;
}

static void put(real *to, bool add, double value) {
    *to = (real)(add ? (double)*to + value : value);
}

#include "engine/device/reference/reference_attention.h"
#include "engine/device/reference/reference_layers.h"
#include "engine/device/reference/reference_update.h"

void reference_launch_real(const launch *l) {
    static void (*const kernels[OPERATION_KIND_COUNT])(const launch *) = {
        [OPERATION_EMBEDDING] = embedding,
        [OPERATION_EMBEDDING_BACKWARD] = embedding_backward,
        [OPERATION_POSITION_BACKWARD] = position_backward,
        [OPERATION_NORM] = norm,
        [OPERATION_NORM_BACKWARD] = norm_backward,
        [OPERATION_MATMUL] = matmul,
        [OPERATION_COLUMN_SUM] = column_sum,
        [OPERATION_ROPE] = rope,
        [OPERATION_ATTENTION] = attention,
        [OPERATION_ATTENTION_BACKWARD] = attention_backward,
        [OPERATION_GELU] = gelu,
        [OPERATION_GELU_BACKWARD] = gelu_backward,
        [OPERATION_SWIGLU] = swiglu,
        [OPERATION_SWIGLU_BACKWARD] = swiglu_backward,
        [OPERATION_CROSS_ENTROPY] = cross_entropy,
        [OPERATION_ADD] = add,
        [OPERATION_FILL] = fill,
        [OPERATION_CAST] = cast,
        [OPERATION_SUM] = sum,
        [OPERATION_GRANULE_NORM] = granule_norm,
        [OPERATION_STEP_RESULT] = step_result,
        [OPERATION_ADAMW] = adamw,
    };
    check(l->kind >= 0 && l->kind < OPERATION_KIND_COUNT && kernels[l->kind] != NULL, "%s has no reference kernel",
          operation_signature_of(l->kind)->name);
    kernels[l->kind](l);
}
