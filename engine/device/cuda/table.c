/* Which kernel executes which kind of operation. A kind without a line here is not executed by a kernel of ours:
 * matmul, copies, collectives. */
#include "engine/device/cuda/device.h"

const cuda_kernel *const cuda_kernels[OPERATION_KIND_COUNT] = {
    [OPERATION_EMBEDDING] = &cuda_embedding,
    [OPERATION_EMBEDDING_BACKWARD] = &cuda_embedding_backward,
    [OPERATION_POSITION_BACKWARD] = &cuda_position_backward,
    [OPERATION_NORM] = &cuda_norm,
    [OPERATION_NORM_BACKWARD] = &cuda_norm_backward,
    [OPERATION_COLUMN_SUM] = &cuda_column_sum,
    [OPERATION_ROPE] = &cuda_rope,
    [OPERATION_ATTENTION] = &cuda_attention,
    [OPERATION_ATTENTION_BACKWARD] = &cuda_attention_backward,
    [OPERATION_GELU] = &cuda_gelu,
    [OPERATION_GELU_BACKWARD] = &cuda_gelu_backward,
    [OPERATION_SWIGLU] = &cuda_swiglu,
    [OPERATION_SWIGLU_BACKWARD] = &cuda_swiglu_backward,
    [OPERATION_CROSS_ENTROPY] = &cuda_cross_entropy,
    [OPERATION_ADD] = &cuda_add,
    [OPERATION_FILL] = &cuda_fill,
    [OPERATION_CAST] = &cuda_cast,
    [OPERATION_SUM] = &cuda_sum,
    [OPERATION_GRANULE_NORM] = &cuda_granule_norm,
    [OPERATION_STEP_RESULT] = &cuda_step_result,
    [OPERATION_ADAMW] = &cuda_adamw,
};
