/* What each file of kernels/ gives to the table of its instruction set and storage. */
#ifndef FSDP_ENGINE_DEVICE_CPU_KERNELS_EXPORTS_H
#define FSDP_ENGINE_DEVICE_CPU_KERNELS_EXPORTS_H

#include "engine/device/cpu/kernels.h"

typedef size_t kernel_workspace(const launch *l, int threads);
typedef void kernel_run(pool *p, const launch *l);

/* ---- of fixed types, or of any: once for each instruction set ---- */

/* cast.c */
kernel_run KERNEL(cast_run), KERNEL(fill_run);
/* sums.c */
kernel_run KERNEL(sum_run), KERNEL(granule_norm_run), KERNEL(step_result_run);
/* adamw.c */
kernel_run KERNEL(adamw_run);

/* ---- once for each storage, too ---- */

#ifdef KERNEL_STORAGE
/* embedding.c */
kernel_run STORED(embedding_run), STORED(embedding_backward_run), STORED(position_backward_run);
/* norm.c */
kernel_run STORED(norm_run), STORED(norm_backward_run);
kernel_workspace STORED(norm_backward_workspace);
/* matmul.c */
kernel_run STORED(matmul_run);
kernel_workspace STORED(matmul_workspace);
/* column_sum.c */
kernel_run STORED(column_sum_run);
kernel_workspace STORED(column_sum_workspace);
/* rope.c */
kernel_run STORED(rope_run);
/* attention.c */
kernel_run STORED(attention_run), STORED(attention_backward_run);
kernel_workspace STORED(attention_workspace), STORED(attention_backward_workspace);
/* activation.c */
kernel_run STORED(gelu_run), STORED(gelu_backward_run), STORED(swiglu_run), STORED(swiglu_backward_run);
/* cross_entropy.c */
kernel_run STORED(cross_entropy_run);
kernel_workspace STORED(cross_entropy_workspace);
/* elementwise.c */
kernel_run STORED(add_run);
#endif

#endif
