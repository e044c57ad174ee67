/* The instructions that kernels reach by name, on the host. Names and meaning are those of
 * engine/device/cuda/ptx/cuda_instructions.h; fragment layouts are the PTX manual's (section "Matrix
 * multiply-accumulate operation using mma instruction"), written out in mma.cpp. */
#ifndef SIMCUDA_CUDA_INSTRUCTIONS_H
#define SIMCUDA_CUDA_INSTRUCTIONS_H

#include "cuda_bf16.h"
#include "cuda_fp16.h"

/* A kernel gets more than this much dynamic shared memory only when it has asked. */
#define SHARED_WITHOUT_ASKING ((size_t)48 * 1024)

#define LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                                         \
    do {                                                                                                               \
        const size_t launch_shared_bytes = (shared_bytes);                                                             \
        if (launch_shared_bytes > SHARED_WITHOUT_ASKING)                                                               \
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)launch_shared_bytes);       \
        simcuda_launch_kernel(#kernel, kernel, grid, block, launch_shared_bytes, stream, ##__VA_ARGS__);               \
    } while (0)
#define DYNAMIC_SHARED(type, name) type *const name = static_cast<type *>(simcuda_dynamic_shared())

typedef struct alignas(16) vector_128 {
    uint32_t u32[4];
} vector_128;

extern "C" {
vector_128 load_128(const void *p);
void store_128(void *p, vector_128 v);

enum simcuda_mma { SIMCUDA_MMA_BF16, SIMCUDA_MMA_F16, SIMCUDA_MMA_TF32 };
void simcuda_mma_fragments(simcuda_mma kind, float d[4], const uint32_t *a, const uint32_t *b, const float c[4],
                           const char *file, int line);
void simcuda_ldmatrix(uint32_t *r, const void *shared_row, int matrices, int transposed, const char *file, int line);

void copy_async_16(void *shared, const void *global, int source_bytes);
void copy_async_commit(void);
void simcuda_copy_async_wait(int groups, const char *file, int line);
}

/* Until at most so many committed groups of this thread are under way. */
static inline void copy_async_wait(int groups, SIMCUDA_SITE) {
    simcuda_copy_async_wait(groups, file, line);
}

static inline void mma_m16n8k16_bf16(float d[4], const uint32_t a[4], const uint32_t b[2], const float c[4],
                                     SIMCUDA_SITE) {
    simcuda_mma_fragments(SIMCUDA_MMA_BF16, d, a, b, c, file, line);
}
static inline void mma_m16n8k16_f16(float d[4], const uint32_t a[4], const uint32_t b[2], const float c[4],
                                    SIMCUDA_SITE) {
    simcuda_mma_fragments(SIMCUDA_MMA_F16, d, a, b, c, file, line);
}
static inline void mma_m16n8k8_tf32(float d[4], const uint32_t a[4], const uint32_t b[2], const float c[4],
                                    SIMCUDA_SITE) {
    simcuda_mma_fragments(SIMCUDA_MMA_TF32, d, a, b, c, file, line);
}
static inline void ldmatrix_x4(uint32_t r[4], const void *shared_row, SIMCUDA_SITE) {
    simcuda_ldmatrix(r, shared_row, 4, 0, file, line);
}
static inline void ldmatrix_x4_transposed(uint32_t r[4], const void *shared_row, SIMCUDA_SITE) {
    simcuda_ldmatrix(r, shared_row, 4, 1, file, line);
}
static inline void ldmatrix_x2(uint32_t r[2], const void *shared_row, SIMCUDA_SITE) {
    simcuda_ldmatrix(r, shared_row, 2, 0, file, line);
}
static inline void ldmatrix_x2_transposed(uint32_t r[2], const void *shared_row, SIMCUDA_SITE) {
    simcuda_ldmatrix(r, shared_row, 2, 1, file, line);
}

#endif
