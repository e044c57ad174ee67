/* What the tests of single calls need: launches, counted accesses, conversions. */
#include "cases.h"

#include "cuda_instructions.h"

#include "engine/device/half.h"

__global__ void nothing() {
}

void simcuda_case_launch(unsigned grid_y, unsigned threads, size_t shared_bytes) {
    simcuda_launch_kernel("nothing", nothing, dim3(1, grid_y), threads, shared_bytes, nullptr);
}

cudaError_t simcuda_case_allow_shared(int bytes) {
    return cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

__global__ void double_wide(float *x) {
    vector_128 v = load_128(x + 4 * threadIdx.x);
    for (uint32_t &bits : v.u32)
        bits = __float_as_uint(2 * __uint_as_float(bits));
    store_128(x + 4 * threadIdx.x, v);
}

__global__ void double_strided(float *x, unsigned stride) { /* thread t takes t * stride, wrapped */
    const unsigned i = threadIdx.x * stride % 512 + threadIdx.x * stride / 512;
    x[i] *= 2;
}

simcuda_counters simcuda_case_count(int kind) {
    device_array<float> x(counted(512));
    simcuda_counters_start();
    if (kind == 0)
        LAUNCH(double_wide, 1, 128, 0, nullptr, x.data);
    else
        LAUNCH(double_strided, 1, 512, 0, nullptr, x.data, kind == 1 ? 1u : 8u);
    return simcuda_counters_stop();
}

/* Values around every 16-bit number: itself, half-way to the next, and a little on either side of that. */
static bool converts(uint32_t bits) {
    const float value = __uint_as_float(bits);
    if (value != value)
        return __bfloat162float(__float2bfloat16_rn(value)) != value && __half2float(__float2half_rn(value)) != value;
    return __bfloat16_as_ushort(__float2bfloat16_rn(value)) == bf16_from_float(value) &&
           __half_as_ushort(__float2half_rn(value)) == f16_from_float(value);
}

bool simcuda_case_formats() {
    for (uint32_t pattern = 0; pattern < 0x10000; pattern++) {
        const float wide = __half2float(__ushort_as_half((unsigned short)pattern));
        if (wide == wide && __half_as_ushort(__float2half_rn(wide)) != pattern)
            return false;
        for (const uint32_t bits : {pattern << 16, __float_as_uint(wide)})
            for (const uint32_t more : {0u, 0xfffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u})
                if (!converts(bits + more))
                    return false;
    }
    return true;
}
