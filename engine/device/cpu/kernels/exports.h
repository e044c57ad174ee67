/* What each file of kernels/ gives to the table of its instruction set. */
#ifndef FSDP_ENGINE_DEVICE_CPU_KERNELS_EXPORTS_H
#define FSDP_ENGINE_DEVICE_CPU_KERNELS_EXPORTS_H

#include "engine/device/cpu/kernels.h"

typedef size_t kernel_workspace(const launch *l, int threads);
typedef void kernel_run(pool *p, const launch *l);

/* embedding.c */
kernel_run KERNEL(embedding_run), KERNEL(embedding_backward_run), KERNEL(position_backward_run);
/* norm.c */
kernel_run KERNEL(norm_run), KERNEL(norm_backward_run);
kernel_workspace KERNEL(norm_backward_workspace);
/* matmul.c */
kernel_run KERNEL(matmul_run);
kernel_workspace KERNEL(matmul_workspace);
/* column_sum.c */
kernel_run KERNEL(column_sum_run);
kernel_workspace KERNEL(column_sum_workspace);
/* rope.c */
kernel_run KERNEL(rope_run);
/* attention.c */
kernel_run KERNEL(attention_run), KERNEL(attention_backward_run);
kernel_workspace KERNEL(attention_workspace), KERNEL(attention_backward_workspace);
/* activation.c */
kernel_run KERNEL(gelu_run), KERNEL(gelu_backward_run), KERNEL(swiglu_run), KERNEL(swiglu_backward_run);
/* cross_entropy.c */
kernel_run KERNEL(cross_entropy_run);
/* elementwise.c */
kernel_run KERNEL(add_run);
/* cast.c */
kernel_run KERNEL(cast_run), KERNEL(fill_run);
/* sums.c */
kernel_run KERNEL(sum_run), KERNEL(granule_norm_run), KERNEL(step_result_run);
/* adamw.c */
kernel_run KERNEL(adamw_run);

#endif
