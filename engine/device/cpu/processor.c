#include "engine/device/cpu/processor.h"

#include <stdio.h>
#include <string.h>
#ifdef KERNEL_X86
#include <cpuid.h>
#endif

#define TABLE(of)                                                                                                      \
    {                                                                                                                  \
        .isa = #of, .kernels = {                                                                                       \
            [DTYPE_F32] = kernels_##of##_fp32,                                                                         \
            [DTYPE_BF16] = kernels_##of##_bf16,                                                                        \
            [DTYPE_F16] = kernels_##of##_fp16                                                                          \
        }                                                                                                              \
    }

#ifdef KERNEL_X86
static const cpu_kernel_table tables[] = {TABLE(avx512), TABLE(avx2), TABLE(baseline)};

/* Conversions of fp16, which not every compiler's __builtin_cpu_supports knows. */
static bool has_f16c(void) {
    unsigned a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

static bool has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

const cpu_kernel_table *processor_kernels(int *count) {
    __builtin_cpu_init();
    *count = has_avx512() ? 3 : has_avx2() ? 2 : 1;
    return &tables[3 - *count];
}
#else
static const cpu_kernel_table tables[] = {TABLE(baseline)};

const cpu_kernel_table *processor_kernels(int *count) {
    *count = 1;
    return tables;
}
#endif

void processor_name(char *name, size_t size) {
    snprintf(name, size, "unknown processor");
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[256];
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        char *value = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || value == NULL)
            continue;
        value += strspn(value, ": \t");
        value[strcspn(value, "\n")] = '\0';
        snprintf(name, size, "%s", value);
        break;
    }
    if (file != NULL)
        fclose(file);
}
