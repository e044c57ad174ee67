/* Correct kernels: silent under every seed, and right. */
#include "cases.h"

#include "cuda_instructions.h"

static bool finish() {
    return cudaDeviceSynchronize() == cudaSuccess;
}

__global__ void row_sums(float *sums, const float *x, int width) {
    __shared__ float part[32];
    float sum = 0;
    for (int i = (int)threadIdx.x; i < width; i += (int)blockDim.x)
        sum += x[(size_t)blockIdx.x * width + i];
    for (int lanes = 16; lanes > 0; lanes /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned warp = 1; warp < blockDim.x / 32; warp++)
            sum += part[warp];
        sums[blockIdx.x] = sum;
    }
}

__global__ void transpose(float *out, const float *in, int width) {
    __shared__ float tile[32][33];
    for (unsigned i = threadIdx.y; i < 32; i += blockDim.y)
        tile[i][threadIdx.x] = in[(blockIdx.y * 32 + i) * width + blockIdx.x * 32 + threadIdx.x];
    __syncthreads();
    for (unsigned i = threadIdx.y; i < 32; i += blockDim.y)
        out[(blockIdx.x * 32 + i) * width + blockIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][i];
}

__global__ void exchange(float *x) { /* dynamic shared memory, whole and half warps, loops */
    DYNAMIC_SHARED(float, tile);
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x - lane, half = lane & 16u;
    float v = x[threadIdx.x];
    for (int round = 0; round < 3; round++) {
        tile[threadIdx.x] = v;
        __syncwarp();
        v = tile[warp + (31 - lane)];
        __syncwarp();
        tile[threadIdx.x] = v;
        __syncwarp(half ? 0xffff0000u : 0x0000ffffu);
        v = tile[warp + half + (15 - (lane & 15u))];
        __syncwarp();
    }
    x[threadIdx.x] = v;
}

__global__ void histogram(unsigned *bins, const int *x, int n) {
    __shared__ unsigned mine[16];
    if (threadIdx.x < 16)
        mine[threadIdx.x] = 0;
    __syncthreads();
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n)
        atomicAdd(&mine[x[i]], 1u);
    __syncthreads();
    if (threadIdx.x < 16)
        atomicAdd(&bins[threadIdx.x], mine[threadIdx.x]);
}

__global__ void pipeline(float *out, const float *in, int tiles) { /* two tiles of copies under way */
    __shared__ __align__(16) float tile[2][4 * 64];
    float sum = 0;
    copy_async_16(&tile[0][4 * threadIdx.x], in + 4 * threadIdx.x, 16);
    copy_async_commit();
    for (int t = 0; t < tiles; t++) {
        if (t + 1 < tiles)
            copy_async_16(&tile[(t + 1) % 2][4 * threadIdx.x], in + (t + 1) * 256 + 4 * (int)threadIdx.x,
                          t + 2 < tiles ? 16 : 0);
        copy_async_commit();
        copy_async_wait(1);
        __syncthreads();
        for (int i = 0; i < 4; i++)
            sum += tile[t % 2][4 * (63 - threadIdx.x) + i];
        __syncthreads();
    }
    out[threadIdx.x] = sum;
}

__global__ void votes(unsigned *out) {
    const unsigned lane = threadIdx.x % 32;
    const unsigned ballot = __ballot_sync(0xffffffffu, lane % 3 == 0);
    const int any = __syncthreads_or(threadIdx.x == 63), count = __syncthreads_count(threadIdx.x < 10);
    const float up = __shfl_up_sync(0xffffffffu, (float)lane, 3),
                down = __shfl_down_sync(0xffffffffu, (float)lane, 2, 8);
    unsigned right = ballot == 0x49249249u && any && count == 10;
    right = right && up == (float)(lane < 3 ? lane : lane - 3) && down == (float)(lane % 8 < 6 ? lane + 2 : lane);
    right = right && __shfl_sync(0xffffffffu, lane, 5, 16) == (lane & 16u) + 5;
    right = right && __reduce_max_sync(0xffffffffu, (int)lane) == 31 && __all_sync(0xffffffffu, lane < 32);
    out[threadIdx.x] = right;
}

/* out[16 x 8] = a[16 x depth] b[depth x 8] by one warp, fragments loaded one element at a time as the PTX manual says.
 */
template <typename T> __device__ uint32_t pair(const T *p, int stride) {
    uint16_t low, high;
    memcpy(&low, p, 2);
    memcpy(&high, p + stride, 2);
    return low | (uint32_t)high << 16;
}
template <typename T> __global__ void product_16(float *out, const T *a, const T *b, int depth) {
    const int group = (int)threadIdx.x / 4, place = (int)threadIdx.x % 4;
    float d[4] = {0, 0, 0, 0};
    for (int k = 0; k < depth; k += 16) {
        const T *top = a + group * depth + k + 2 * place, *bottom = top + 8 * depth;
        const uint32_t fa[4] = {pair(top, 1), pair(bottom, 1), pair(top + 8, 1), pair(bottom + 8, 1)};
        const T *first = b + (k + 2 * place) * 8 + group;
        const uint32_t fb[2] = {pair(first, 8), pair(first + 8 * 8, 8)};
        if (sizeof(T) == 2 && std::is_same<T, __half>::value)
            mma_m16n8k16_f16(d, fa, fb, d);
        else
            mma_m16n8k16_bf16(d, fa, fb, d);
    }
    for (int i = 0; i < 4; i++)
        out[(group + 8 * (i / 2)) * 8 + 2 * place + i % 2] = d[i];
}
/* The same through shared memory and ldmatrix. */
__global__ void product_ldmatrix(float *out, const __nv_bfloat16 *a, const __nv_bfloat16 *b) {
    __shared__ __align__(16) __nv_bfloat16 tile_a[16][16], tile_b[16][8];
    for (unsigned i = threadIdx.x; i < 256; i += 32)
        tile_a[i / 16][i % 16] = a[i];
    for (unsigned i = threadIdx.x; i < 128; i += 32)
        tile_b[i / 8][i % 8] = b[i];
    __syncthreads();
    uint32_t fa[4], fb[2];
    float d[4] = {0, 0, 0, 0};
    const unsigned lane = threadIdx.x;
    ldmatrix_x4(fa, &tile_a[lane % 16][8 * (lane / 16)]);
    ldmatrix_x2_transposed(fb, &tile_b[lane % 16][0]);
    mma_m16n8k16_bf16(d, fa, fb, d);
    for (int i = 0; i < 4; i++)
        out[(lane / 4 + 8 * (unsigned)(i / 2)) * 8 + 2 * (lane % 4) + (unsigned)i % 2] = d[i];
}
__global__ void product_tf32(float *out, const float *a, const float *b) {
    const unsigned group = threadIdx.x / 4, place = threadIdx.x % 4;
    float d[4] = {0, 0, 0, 0};
    const uint32_t fa[4] = {__float_as_uint(a[group * 8 + place]), __float_as_uint(a[(group + 8) * 8 + place]),
                            __float_as_uint(a[group * 8 + place + 4]), __float_as_uint(a[(group + 8) * 8 + place + 4])};
    const uint32_t fb[2] = {__float_as_uint(b[place * 8 + group]), __float_as_uint(b[(place + 4) * 8 + group])};
    mma_m16n8k8_tf32(d, fa, fb, d);
    for (int i = 0; i < 4; i++)
        out[(group + 8 * (unsigned)(i / 2)) * 8 + 2 * place + (unsigned)i % 2] = d[i];
}

/* Small whole numbers: exact in every format and any order of sums. */
template <typename T> static std::vector<T> small_numbers(size_t n, int step) {
    std::vector<T> v;
    for (size_t i = 0; i < n; i++)
        v.push_back(T((float)((int)(i * (size_t)step) % 7 - 3)));
    return v;
}
template <typename T>
static bool is_product(const std::vector<float> &out, const std::vector<T> &a, const std::vector<T> &b, size_t depth) {
    for (size_t row = 0; row < 16; row++)
        for (size_t column = 0; column < 8; column++) {
            float sum = 0;
            for (size_t k = 0; k < depth; k++)
                sum += (float)a[row * depth + k] * (float)b[k * 8 + column];
            if (out[row * 8 + column] != sum)
                return false;
        }
    return true;
}
template <typename T, typename... P>
static bool check_product(void (*kernel)(float *, const T *, const T *, P...), size_t depth, P... rest) {
    const std::vector<T> a = small_numbers<T>(16 * depth, 5), b = small_numbers<T>(8 * depth, 3);
    device_array<T> da(a), db(b);
    device_array<float> out(128);
    LAUNCH(kernel, 1, 32, 0, nullptr, out.data, da.data, db.data, rest...);
    return finish() && is_product(out.values(), a, b, depth);
}

const simcuda_case simcuda_correct_kernels[] = {
    {"sums of rows",
     [] {
         device_array<float> x(counted(10 * 100)), sums(10);
         LAUNCH(row_sums, 10, 96, 0, nullptr, sums.data, x.data, 100);
         const std::vector<float> got = sums.values();
         for (size_t row = 0; row < 10; row++)
             if (got[row] != (float)(100 * (100 * row) + 4950))
                 return false;
         return true;
     },
     nullptr},
    {"transposition",
     [] {
         device_array<float> x(counted(64 * 64)), y(64 * 64);
         LAUNCH(transpose, dim3(2, 2), dim3(32, 8), 0, nullptr, y.data, x.data, 64);
         const std::vector<float> got = y.values();
         for (size_t i = 0; i < 64 * 64; i++)
             if (got[i] != (float)(i % 64 * 64 + i / 64))
                 return false;
         return true;
     },
     nullptr},
    {"exchange in whole and half warps",
     [] {
         device_array<float> x(counted(64));
         LAUNCH(exchange, 1, 64, 64 * sizeof(float), nullptr, x.data);
         const std::vector<float> got = x.values(); /* 31 - lane, then reversed in halves: three times lane ^ 16 */
         for (size_t i = 0; i < 64; i++)
             if (got[i] != (float)(i ^ 16))
                 return false;
         return true;
     },
     nullptr},
    {"histogram with atomics",
     [] {
         std::vector<int> v(1000);
         for (size_t i = 0; i < v.size(); i++)
             v[i] = (int)(i % 16);
         device_array<int> x(v);
         device_array<unsigned> bins(std::vector<unsigned>(16));
         LAUNCH(histogram, 8, 128, 0, nullptr, bins.data, x.data, 1000);
         const std::vector<unsigned> got = bins.values();
         for (size_t i = 0; i < 16; i++)
             if (got[i] != (i < 8 ? 63u : 62u))
                 return false;
         return true;
     },
     nullptr},
    {"pipeline of asynchronous copies",
     [] {
         device_array<float> x(counted(5 * 256)), y(64);
         LAUNCH(pipeline, 1, 64, 0, nullptr, y.data, x.data, 5);
         const std::vector<float> got = y.values();
         for (size_t i = 0; i < 64; i++) { /* four tiles; the fifth is filled with zeros */
             const float first = (float)(4 * (63 - i));
             if (got[i] != 16 * first + 4 * (0 + 1 + 2 + 3) + 4 * 256 * (0 + 1 + 2 + 3))
                 return false;
         }
         return true;
     },
     nullptr},
    {"votes and shuffles",
     [] {
         device_array<unsigned> out(64);
         LAUNCH(votes, 1, 64, 0, nullptr, out.data);
         return out.values() == std::vector<unsigned>(64, 1);
     },
     nullptr},
    {"mma of bf16", [] { return check_product<__nv_bfloat16>(product_16<__nv_bfloat16>, 32, 32); }, nullptr},
    {"mma of fp16", [] { return check_product<__half>(product_16<__half>, 32, 32); }, nullptr},
    {"mma of tf32", [] { return check_product<float>(product_tf32, 8); }, nullptr},
    {"ldmatrix, plain and transposed", [] { return check_product<__nv_bfloat16>(product_ldmatrix, 16); }, nullptr},
    {nullptr, nullptr, nullptr},
};
