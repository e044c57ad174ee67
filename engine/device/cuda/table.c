/* Which kernel executes which kind of operation. A kind without a line here is not executed by a kernel of ours
 * (matmul, copies, collectives) or has none yet. */
#include "engine/device/cuda/device.h"

const cuda_kernel *const cuda_kernels[OPERATION_KIND_COUNT] = {
    [OPERATION_ATTENTION] = &cuda_attention,
    [OPERATION_ATTENTION_BACKWARD] = &cuda_attention_backward,
};
