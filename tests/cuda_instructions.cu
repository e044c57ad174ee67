/* Every name of cuda_instructions.h in one kernel: what compiles here compiles in engine/device/cuda/kernels/. */
#include "cuda_instructions.h"

template <typename element> static __global__ void every_instruction(const element *from, element *to, int bytes) {
    DYNAMIC_SHARED(uint32_t, shared);
    uint32_t a[4], b[2], c[2], d[4];
    float sums[4] = {0, 0, 0, 0};
    copy_async_16(shared + 4 * threadIdx.x, from + 4 * threadIdx.x, bytes);
    copy_async_commit();
    copy_async_wait(1);
    copy_async_wait(0);
    __syncthreads();
    ldmatrix_x4(a, shared + 4 * threadIdx.x);
    ldmatrix_x4_transposed(d, shared + 4 * threadIdx.x);
    ldmatrix_x2(b, shared + 4 * (threadIdx.x % 16));
    ldmatrix_x2_transposed(c, shared + 4 * (threadIdx.x % 16));
    mma_m16n8k16_bf16(sums, a, b, sums);
    mma_m16n8k16_f16(sums, d, c, sums);
    mma_m16n8k8_tf32(sums, a, c, sums);
    vector_128 v = load_128(from + 4 * threadIdx.x);
    for (int i = 0; i < 4; i++)
        v.u32[i] += (uint32_t)sums[i];
    store_128(to + 4 * threadIdx.x, v);
}

extern "C" void every_instruction_launch(const float *from, float *to, size_t shared_bytes, cudaStream_t stream) {
    LAUNCH((every_instruction<float>), 1, 32, shared_bytes, stream, from, to, 16);
}
