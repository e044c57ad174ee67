#include "engine/device/cpu/kernels/exports.h"

const cpu_kernel_table KERNEL(kernels) = {
    .isa = KERNEL_TEXT(KERNEL_ISA),
    .kernels =
        {
            [OPERATION_EMBEDDING] = {NULL, KERNEL(embedding_run)},
            [OPERATION_EMBEDDING_BACKWARD] = {NULL, KERNEL(embedding_backward_run)},
            [OPERATION_POSITION_BACKWARD] = {NULL, KERNEL(position_backward_run)},
            [OPERATION_NORM] = {NULL, KERNEL(norm_run)},
            [OPERATION_NORM_BACKWARD] = {KERNEL(norm_backward_workspace), KERNEL(norm_backward_run)},
            [OPERATION_MATMUL] = {KERNEL(matmul_workspace), KERNEL(matmul_run)},
            [OPERATION_COLUMN_SUM] = {KERNEL(column_sum_workspace), KERNEL(column_sum_run)},
            [OPERATION_ROPE] = {NULL, KERNEL(rope_run)},
            [OPERATION_ATTENTION] = {KERNEL(attention_workspace), KERNEL(attention_run)},
            [OPERATION_ATTENTION_BACKWARD] = {KERNEL(attention_backward_workspace), KERNEL(attention_backward_run)},
            [OPERATION_GELU] = {NULL, KERNEL(gelu_run)},
            [OPERATION_GELU_BACKWARD] = {NULL, KERNEL(gelu_backward_run)},
            [OPERATION_SWIGLU] = {NULL, KERNEL(swiglu_run)},
            [OPERATION_SWIGLU_BACKWARD] = {NULL, KERNEL(swiglu_backward_run)},
            [OPERATION_CROSS_ENTROPY] = {NULL, KERNEL(cross_entropy_run)},
            [OPERATION_ADD] = {NULL, KERNEL(add_run)},
            [OPERATION_FILL] = {NULL, KERNEL(fill_run)},
            [OPERATION_CAST] = {NULL, KERNEL(cast_run)},
            [OPERATION_SUM] = {NULL, KERNEL(sum_run)},
            [OPERATION_GRANULE_NORM] = {NULL, KERNEL(granule_norm_run)},
            [OPERATION_STEP_RESULT] = {NULL, KERNEL(step_result_run)},
            [OPERATION_ADAMW] = {NULL, KERNEL(adamw_run)},
        },
};
