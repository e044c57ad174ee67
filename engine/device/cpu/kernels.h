/* The CPU's kernels: a table for each instruction set, and in it for each storage (A in engine/device/operation.h),
 * made from the same sources in kernels/. CMake compiles them once per instruction set and storage with KERNEL_ISA and
 * KERNEL_STORAGE defined; those of operations without a storage once per instruction set. device.c chooses a table when
 * it opens. */
#ifndef FSDP_ENGINE_DEVICE_CPU_KERNELS_H
#define FSDP_ENGINE_DEVICE_CPU_KERNELS_H

#include "engine/device/cpu/pool.h"

typedef struct cpu_kernel {
    /* Bytes of workspace for these shapes with `threads` threads; NULL: none. */
    size_t (*workspace)(const launch *l, int threads);
    void (*run)(pool *p, const launch *l);
} cpu_kernel;

typedef struct cpu_kernel_table {
    const char *isa;
    const cpu_kernel *kernels[DTYPE_COUNT]; /* [fp32, bf16, fp16][OPERATION_KIND_COUNT]; the others NULL */
} cpu_kernel_table;

/* The kernel for the kind and the types of a launch. */
static inline const cpu_kernel *cpu_kernel_for(const cpu_kernel_table *table, const launch *l) {
    return &table->kernels[operation_storage(l)][l->kind];
}

/* In kernels/: compiled for avx512 and bf16, KERNEL(sum) is sum_avx512, STORAGE(load) load_bf16 and STORED(norm)
 * norm_avx512_bf16. Each file there declares what it exports in kernels/exports.h; kernels/table.c makes the table of
 * them. */
#define KERNEL_JOIN(name, suffix) name##_##suffix
#define KERNEL_EXPAND(name, suffix) KERNEL_JOIN(name, suffix)
#define KERNEL(name) KERNEL_EXPAND(name, KERNEL_ISA)
#define STORAGE(name) KERNEL_EXPAND(name, KERNEL_STORAGE)
#define STORED(name) KERNEL_EXPAND(KERNEL(name), KERNEL_STORAGE)

#define KERNELS_OF(isa)                                                                                                \
    extern const cpu_kernel kernels_##isa##_fp32[OPERATION_KIND_COUNT], kernels_##isa##_bf16[OPERATION_KIND_COUNT],    \
        kernels_##isa##_fp16[OPERATION_KIND_COUNT];
KERNELS_OF(baseline)
KERNELS_OF(avx2)
KERNELS_OF(avx512)
#undef KERNELS_OF

#endif
