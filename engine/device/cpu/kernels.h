/* The CPU's kernels: one table per instruction set, made from the same sources in kernels/, which CMake compiles once
 * per instruction set with KERNEL_ISA defined. device.c chooses a table when it opens. */
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
    cpu_kernel kernels[OPERATION_KIND_COUNT];
} cpu_kernel_table;

/* In kernels/: KERNEL(norm) is norm_avx512 when compiled for avx512. Each file there declares what it exports in
 * kernels/exports.h; kernels/table.c makes the table of them. */
#define KERNEL_JOIN(name, isa) name##_##isa
#define KERNEL_EXPAND(name, isa) KERNEL_JOIN(name, isa)
#define KERNEL(name) KERNEL_EXPAND(name, KERNEL_ISA)
#define KERNEL_QUOTE(text) #text
#define KERNEL_TEXT(text) KERNEL_QUOTE(text)

extern const cpu_kernel_table kernels_baseline, kernels_avx2, kernels_avx512;

#endif
