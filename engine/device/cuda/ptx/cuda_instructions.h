/* What kernels need beyond CUDA's own names: launches, 128-bit accesses, tensor-core and asynchronous-copy
 * instructions, for GPUs of compute capability 8.0 and later. Kernels include it as "cuda_instructions.h":
 * tests/simcuda/include has the same names for the host, where they follow the same layouts and rounding.
 *
 * Fragments of a warp's matrix products are those of the PTX manual ("Matrix Fragments for mma.m16n8k16" and
 * "mma.m16n8k8"). With group = lane / 4 and place = lane % 4, d[0..3] and c[0..3] are the elements (row, column)
 *
 *   (group, 2 place), (group, 2 place + 1), (group + 8, 2 place), (group + 8, 2 place + 1)   of 16 x 8 fp32
 *
 * and for m16n8k16, where a register holds two 16-bit values, the lower column (of a) or row (of b) in its lower half:
 *
 *   a[0..3] begin at (group, 2 place), (group + 8, 2 place), (group, 2 place + 8), (group + 8, 2 place + 8)  of 16 x 16
 *   b[0..1] begin at (2 place, group), (2 place + 8, group)                                                  of 16 x 8
 *
 * and for m16n8k8, where a register holds the bits of an fp32, of which the lowest 13 are ignored:
 *
 *   a[0..3] = (group, place), (group + 8, place), (group, place + 4), (group + 8, place + 4)                of 16 x 8
 *   b[0..1] = (place, group), (place + 4, group)                                                            of 8 x 8
 */
#ifndef FSDP_ENGINE_DEVICE_CUDA_PTX_CUDA_INSTRUCTIONS_H
#define FSDP_ENGINE_DEVICE_CUDA_PTX_CUDA_INSTRUCTIONS_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <stddef.h>
#include <stdint.h>

/* A kernel gets more than this much dynamic shared memory only when it has asked. */
#define SHARED_WITHOUT_ASKING ((size_t)48 * 1024)

/* Queues kernel(arguments...) on the stream. The kernel may be a template's instance in parentheses. An error shows at
 * cudaGetLastError. */
#define LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                                         \
    do {                                                                                                               \
        size_t launch_shared_bytes = (shared_bytes);                                                                   \
        if (launch_shared_bytes > SHARED_WITHOUT_ASKING)                                                               \
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)launch_shared_bytes);       \
        kernel<<<(grid), (block), launch_shared_bytes, (stream)>>>(__VA_ARGS__);                                       \
    } while (0)

/* Declares the block's dynamic shared memory as `type *name`, aligned to 16 bytes. */
extern __shared__ uint4 dynamic_shared_memory[];
#define DYNAMIC_SHARED(type, name) type *name = reinterpret_cast<type *>(dynamic_shared_memory)

/* 16 bytes in four registers: 4 fp32, 8 bf16 or 8 fp16, the first in the lowest bits of u32[0]. */
struct __align__(16) vector_128 {
    uint32_t u32[4];
};

/* One 128-bit access, to global or shared memory; p is aligned to 16 bytes. */
__device__ __forceinline__ vector_128 load_128(const void *p) {
    uint4 v = *static_cast<const uint4 *>(p);
    return {{v.x, v.y, v.z, v.w}};
}
__device__ __forceinline__ void store_128(void *p, vector_128 v) {
    *static_cast<uint4 *>(p) = make_uint4(v.u32[0], v.u32[1], v.u32[2], v.u32[3]);
}

/* d = a b + c by all 32 lanes of a warp together; products exact, sums in fp32. */
__device__ __forceinline__ void mma_m16n8k16_bf16(float d[4], const uint32_t a[4], const uint32_t b[2],
                                                  const float c[4]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%10,%11,%12,%13};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]),
                   "f"(c[3]));
}
__device__ __forceinline__ void mma_m16n8k16_f16(float d[4], const uint32_t a[4], const uint32_t b[2],
                                                 const float c[4]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%10,%11,%12,%13};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]),
                   "f"(c[3]));
}
__device__ __forceinline__ void mma_m16n8k8_tf32(float d[4], const uint32_t a[4], const uint32_t b[2],
                                                 const float c[4]) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%10,%11,%12,%13};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]),
                   "f"(c[3]));
}

/* The address of shared memory in its own 32-bit space. */
__device__ __forceinline__ uint32_t shared_address(const void *p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

/* Loads four (two) 8 x 8 matrices of 16-bit values from shared memory. Lane l gives the address, aligned to 16 bytes,
 * of row l % 8 of matrix l / 8 (of x2: lanes 0 to 15), and gets in r[i] the elements 2 (l % 4) and 2 (l % 4) + 1 of row
 * l / 4 of matrix i; transposed: of column l / 4. */
__device__ __forceinline__ void ldmatrix_x4(uint32_t r[4], const void *shared_row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(shared_row))
                 : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_transposed(uint32_t r[4], const void *shared_row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(shared_row))
                 : "memory");
}
__device__ __forceinline__ void ldmatrix_x2(uint32_t r[2], const void *shared_row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(shared_address(shared_row))
                 : "memory");
}
__device__ __forceinline__ void ldmatrix_x2_transposed(uint32_t r[2], const void *shared_row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(shared_address(shared_row))
                 : "memory");
}

/* Starts a copy of 16 bytes from global to shared memory, both aligned to 16 bytes. source_bytes is 16, or 0: nothing
 * is read and the 16 bytes become zero. */
__device__ __forceinline__ void copy_async_16(void *shared, const void *global, int source_bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
                 "l"(__cvta_generic_to_global(global)), "r"(source_bytes)
                 : "memory");
}
/* Makes one group of this thread's copies since the last commit. */
__device__ __forceinline__ void copy_async_commit(void) {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Waits until at most `pending` (a constant) of this thread's latest groups are unfinished. Other threads see the bytes
 * after a barrier. */
#define copy_async_wait(pending) asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory")

#endif
