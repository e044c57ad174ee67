/* Misuses inside a kernel: shared memory, global memory, threads that do not meet. */
#include "cases.h"

#include "cuda_instructions.h"

static bool finish() {
    return cudaDeviceSynchronize() == cudaSuccess;
}

/* Shared memory. */

__global__ void missing_barrier(float *x) {
    __shared__ float tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    x[threadIdx.x] = tile[63 - threadIdx.x];
}

__global__ void missing_second_barrier(float *x) { /* the tile is filled again while others still read it */
    __shared__ float tile[64];
    float sum = 0;
    for (int round = 0; round < 2; round++) {
        tile[threadIdx.x] = x[threadIdx.x] + (float)round;
        __syncthreads();
        sum += tile[63 - threadIdx.x];
    }
    x[threadIdx.x] = sum;
}

__global__ void two_writers(float *x) {
    __shared__ float total;
    total = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = total;
}

__global__ void warp_exchange(float *x, int kind) { /* lanes of one warp are not in step; a shuffle is no barrier */
    __shared__ float tile[32];
    float v = x[threadIdx.x];
    tile[threadIdx.x] = v;
    if (kind == 1)
        v = __shfl_xor_sync(0xffffffffu, v, 1);
    x[threadIdx.x] = tile[31 - threadIdx.x] + v;
}

__global__ void half_warp_barrier(float *x) { /* orders only the lanes of its mask */
    __shared__ float tile[32];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncwarp(threadIdx.x < 16 ? 0x0000ffffu : 0xffff0000u);
    x[threadIdx.x] = tile[31 - threadIdx.x];
}

__global__ void other_warp(float *x) { /* __syncwarp does not order warps */
    __shared__ float tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncwarp();
    x[threadIdx.x] = tile[63 - threadIdx.x];
}

__global__ void unwritten_tile(float *x) {
    __shared__ float tile[64];
    if (threadIdx.x != 5)
        tile[threadIdx.x] = 1;
    __syncthreads();
    x[threadIdx.x] = tile[threadIdx.x];
}

__global__ void unwritten_sum(float *x) {
    __shared__ float sum[4];
    if (threadIdx.x < 4)
        sum[threadIdx.x] += x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = sum[threadIdx.x % 4];
}

__global__ void unwritten_dynamic(float *x) {
    DYNAMIC_SHARED(float, tile);
    tile[threadIdx.x] = 1;
    __syncthreads();
    x[threadIdx.x] = tile[threadIdx.x + 1];
}

__global__ void kept_from_block_before(float *x) { /* shared memory does not outlive a block */
    __shared__ float tile[64];
    if (blockIdx.x == 0)
        tile[threadIdx.x] = 1;
    x[blockIdx.x * 64 + threadIdx.x] = tile[threadIdx.x];
}

__global__ void behind_dynamic(float *x) {
    DYNAMIC_SHARED(float, tile);
    tile[threadIdx.x + 1] = x[threadIdx.x];
}

__global__ void behind_static(float *x, int offset) {
    __shared__ float tile[64];
    tile[threadIdx.x + offset] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = tile[threadIdx.x];
}

__device__ void store_through(float *p, int i) {
    p[i] = 1;
}

__global__ void behind_static_pointer(float *x, int offset) { /* no array type tells the bounds here */
    __shared__ float tile[64];
    float *p = x[threadIdx.x] < 0 ? x : tile;
    store_through(p, (int)threadIdx.x + offset);
}

__global__ void copy_not_awaited(float *x, int kind) {
    __shared__ __align__(16) float tile[4 * 32];
    copy_async_16(tile + 4 * threadIdx.x, x + 4 * threadIdx.x, 16);
    if (kind != 2)
        copy_async_commit();
    if (kind == 1)
        copy_async_wait(1); /* one group may still be under way: this one */
    if (kind == 2)
        copy_async_wait(0); /* but nothing was committed */
    float v = tile[4 * threadIdx.x];
    copy_async_commit();
    copy_async_wait(0);
    x[4 * threadIdx.x] = v + 1;
}

__global__ void copy_of_other_thread(float *x) { /* each waits for its own copy only: a barrier is missing */
    __shared__ __align__(16) float tile[4 * 32];
    copy_async_16(tile + 4 * threadIdx.x, x + 4 * threadIdx.x, 16);
    copy_async_commit();
    copy_async_wait(0);
    x[128 + threadIdx.x] = tile[4 * (31 - threadIdx.x)];
}

__global__ void copy_over_readers(float *x) { /* the next copy begins while others still read the tile */
    __shared__ __align__(16) float tile[4 * 32];
    float sum = 0;
    for (int round = 0; round < 2; round++) {
        copy_async_16(tile + 4 * threadIdx.x, x + 4 * threadIdx.x, 16);
        copy_async_commit();
        copy_async_wait(0);
        __syncthreads();
        sum += tile[4 * (31 - threadIdx.x)];
    }
    x[128 + threadIdx.x] = sum;
}

__global__ void copy_left_alone(float *x) {
    __shared__ __align__(16) float tile[4 * 32];
    copy_async_16(tile + 4 * threadIdx.x, x + 4 * threadIdx.x, 16);
    copy_async_commit();
}

__global__ void crooked_matrix(float *x) {
    __shared__ __align__(16) uint16_t tile[8 * 64];
    for (int i = 0; i < 16; i++)
        tile[16 * threadIdx.x + i] = 1;
    __syncthreads();
    uint32_t r[4];
    ldmatrix_x4(r, tile + 8 * threadIdx.x + 1);
    x[threadIdx.x] = (float)r[0];
}

__global__ void unwritten_matrix(float *x) {
    __shared__ __align__(16) uint16_t tile[8 * 64];
    for (int i = 0; i < 7; i++)
        tile[8 * threadIdx.x + i] = 1;
    __syncthreads();
    uint32_t r[4];
    ldmatrix_x4(r, tile + 8 * threadIdx.x);
    x[threadIdx.x] = (float)r[0];
}

/* Global memory. */

__global__ void double_all(float *x, size_t n) {
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] *= 2;
}

__global__ void add_neighbour(float *x) { /* of the next thread, or the next block's */
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i] += x[i + 1];
}

__global__ void all_to_one(float *x) {
    if (threadIdx.x == 0)
        x[0] = (float)blockIdx.x;
}

__global__ void read_while_updated(unsigned *x) {
    atomicAdd(x, 1u);
    x[1 + threadIdx.x] = x[0];
}

__global__ void crooked_vector(float *x) {
    store_128(x + 4, load_128(x + 1));
}

__global__ void local_index(float *x, int n) {
    float part[4] = {0, 0, 0, 0};
    for (int i = 0; i < n; i++)
        part[i] += x[i];
    x[0] = part[0] + part[1] + part[2] + part[3];
}

/* Threads that do not meet. */

__global__ void leaves_early(float *x, int n) {
    if ((int)threadIdx.x >= n)
        return;
    x[threadIdx.x] = 1;
    __syncthreads();
}

__global__ void two_barriers(float *x) {
    if (threadIdx.x < 32) {
        x[threadIdx.x] = 1;
        __syncthreads();
    } else {
        x[threadIdx.x] = 2;
        __syncthreads();
    }
}

__global__ void barrier_and_shuffle(float *x) {
    if (threadIdx.x < 8)
        x[threadIdx.x] = __shfl_down_sync(0xffffffffu, x[threadIdx.x], 1);
    else
        __syncthreads();
}

__global__ void lane_left(float *x) {
    if (threadIdx.x == 31)
        return;
    x[threadIdx.x] = __shfl_xor_sync(0xffffffffu, x[threadIdx.x], 1);
}

__global__ void masks_differ(float *x) {
    const float v = x[threadIdx.x];
    x[threadIdx.x] = __shfl_sync(threadIdx.x < 16 ? 0xffffffffu : 0xffff0000u, v, 16);
}

__global__ void not_in_own_mask(float *x) {
    x[threadIdx.x] = __shfl_sync(0x0000ffffu, x[threadIdx.x], 0);
}

__global__ void from_outside_mask(float *x) {
    if (threadIdx.x < 16)
        x[threadIdx.x] = __shfl_sync(0x0000ffffu, x[threadIdx.x], 20);
}

__global__ void mma_by_half(float *x) {
    float d[4] = {0, 0, 0, 0};
    const uint32_t a[4] = {0, 0, 0, 0}, b[2] = {0, 0};
    if (threadIdx.x < 16)
        mma_m16n8k16_bf16(d, a, b, d);
    x[threadIdx.x] = d[0];
}

#define RUN(kernel, threads, shared, ...)                                                                              \
    [] {                                                                                                               \
        device_array<float> x(counted(256));                                                                           \
        LAUNCH(kernel, 1, threads, shared, nullptr, x.data, ##__VA_ARGS__);                                            \
        return finish();                                                                                               \
    }

const simcuda_case simcuda_shared_misuses[] = {
    {"no barrier between write and read", RUN(missing_barrier, 64, 0), "shared array tile"},
    {"no barrier between read and next write", RUN(missing_second_barrier, 64, 0), "no barrier between"},
    {"two threads write one value", RUN(two_writers, 64, 0), "shared array total"},
    {"lanes exchange without __syncwarp", RUN(warp_exchange, 32, 0, 0), "shared array tile"},
    {"lanes exchange with a shuffle between", RUN(warp_exchange, 32, 0, 1), "shared array tile"},
    {"__syncwarp of half a warp", RUN(half_warp_barrier, 32, 0), "shared array tile"},
    {"__syncwarp between warps", RUN(other_warp, 64, 0), "shared array tile"},
    {"unwritten element of a static array", RUN(unwritten_tile, 64, 0),
     "byte 20 of the shared array tile, which no thread of the block has written"},
    {"sum that starts unwritten", RUN(unwritten_sum, 64, 0), "no thread of the block has written"},
    {"unwritten element of dynamic shared memory", RUN(unwritten_dynamic, 64, 65 * sizeof(float)),
     "byte 256 of the shared array dynamic shared memory"},
    {"shared memory kept from the block before",
     [] {
         device_array<float> x(128);
         LAUNCH(kept_from_block_before, 2, 64, 0, nullptr, x.data);
         return finish();
     },
     "no thread of the block has written"},
    {"behind dynamic shared memory", RUN(behind_dynamic, 64, 64 * sizeof(float)), "0 bytes behind the end"},
    {"behind a static array", RUN(behind_static, 64, 0, 1), "index 64 is outside"},
    {"far behind a static array, through a pointer", RUN(behind_static_pointer, 64, 0, 1 << 22), "host memory"},
    {"copy_async without wait", RUN(copy_not_awaited, 32, 0, 0), "asynchronous copy is still under way"},
    {"copy_async with a wait for too few groups", RUN(copy_not_awaited, 32, 0, 1), "still under way"},
    {"copy_async without commit", RUN(copy_not_awaited, 32, 0, 2), "still under way"},
    {"copy_async of another thread, no barrier", RUN(copy_of_other_thread, 32, 0), "tile"},
    {"copy_async over what others still read", RUN(copy_over_readers, 32, 0), "tile"},
    {"copy_async under way at the end", RUN(copy_left_alone, 32, 0), "leaves while 1 of its asynchronous copies"},
    {"ldmatrix of a row that is not aligned", RUN(crooked_matrix, 32, 0), "not aligned to 16 bytes"},
    {"ldmatrix of unwritten elements", RUN(unwritten_matrix, 32, 0), "no thread of the block has written"},
    {nullptr, nullptr, nullptr},
};

const simcuda_case simcuda_global_misuses[] = {
    {"behind the end of an allocation",
     [] {
         device_array<float> x(counted(100));
         LAUNCH(double_all, 1, 128, 0, nullptr, x.data, (size_t)101);
         return finish();
     },
     "0 bytes behind the end of the allocation of 400 bytes"},
    {"before the start of an allocation",
     [] {
         device_array<float> x(counted(100));
         LAUNCH(double_all, 1, 128, 0, nullptr, x.data - 1, (size_t)100);
         return finish();
     },
     "device memory"},
    {"half behind the end of an allocation",
     [] {
         device_array<char> x(std::vector<char>(402));
         LAUNCH(double_all, 1, 128, 0, nullptr, (float *)x.data, (size_t)101);
         return finish();
     },
     "the last of them behind the end"},
    {"unwritten element",
     [] {
         device_array<float> x(100);
         LAUNCH(double_all, 1, 128, 0, nullptr, x.data, (size_t)100);
         return finish();
     },
     "never written: byte "},
    {"made unwritten by the test",
     [] {
         device_array<float> x(counted(100));
         simcuda_uninitialise(x.data + 7, sizeof(float));
         LAUNCH(double_all, 1, 128, 0, nullptr, x.data, (size_t)100);
         return finish();
     },
     "never written: byte 28 of"},
    {"forbidden by the test",
     [] {
         device_array<float> x(counted(100));
         simcuda_forbid(x.data + 99, 1);
         LAUNCH(double_all, 1, 128, 0, nullptr, x.data, (size_t)100);
         return finish();
     },
     "forbidden by the test: byte 396 of"},
    {"freed memory",
     [] {
         float *stale;
         {
             device_array<float> x(counted(100));
             stale = x.data;
         }
         LAUNCH(double_all, 1, 128, 0, nullptr, stale, (size_t)100);
         return finish();
     },
     "device memory"},
    {"pageable host memory",
     [] {
         std::vector<float> x = counted(100);
         LAUNCH(double_all, 1, 128, 0, nullptr, x.data(), x.size());
         return finish();
     },
     "host memory"},
    {"pinned host memory",
     [] {
         static float *x;
         if (!x)
             cudaMallocHost(&x, 400);
         LAUNCH(double_all, 1, 128, 0, nullptr, x, (size_t)100);
         return finish();
     },
     "pinned host memory"},
    {"null pointer",
     [] {
         LAUNCH(double_all, 1, 128, 0, nullptr, (float *)nullptr, (size_t)100);
         return finish();
     },
     "a null pointer"},
    {"threads race on global memory", RUN(add_neighbour, 64, 0), "no barrier between"},
    {"blocks race on global memory",
     [] {
         device_array<float> x(counted(9));
         LAUNCH(add_neighbour, 8, 1, 0, nullptr, x.data);
         return finish();
     },
     "another block of the same kernel"},
    {"all blocks write one value",
     [] {
         device_array<float> x(counted(9));
         LAUNCH(all_to_one, 8, 32, 0, nullptr, x.data);
         return finish();
     },
     "another block of the same kernel wrote"},
    {"plain read of what others update",
     [] {
         device_array<unsigned> x(std::vector<unsigned>(65));
         LAUNCH(read_while_updated, 1, 64, 0, nullptr, x.data);
         return finish();
     },
     "race"},
    {"load_128 that is not aligned", RUN(crooked_vector, 1, 0), "not aligned to 16 bytes"},
    {"index behind a local array", RUN(local_index, 1, 0, 5), "index 4 is outside of a fixed array"},
    {nullptr, nullptr, nullptr},
};

const simcuda_case simcuda_meeting_misuses[] = {
    {"a thread leaves before the barrier", RUN(leaves_early, 64, 0, 63), "has left the kernel"},
    {"a warp leaves before the barrier", RUN(leaves_early, 64, 0, 32), "has left the kernel"},
    {"two different barriers", RUN(two_barriers, 64, 0), "different barriers"},
    {"barrier here, shuffle there", RUN(barrier_and_shuffle, 32, 0), "wait for each other for ever"},
    {"a lane leaves before a shuffle", RUN(lane_left, 32, 0), "thread (31,0,0) has left the kernel"},
    {"masks differ", RUN(masks_differ, 32, 0), "mask"},
    {"a lane outside of its own mask", RUN(not_in_own_mask, 32, 0), "not in its mask 0000ffff"},
    {"shuffle from outside of the mask", RUN(from_outside_mask, 32, 0), "from lane 20"},
    {"mma by half a warp", RUN(mma_by_half, 32, 0), "has left the kernel"},
    {nullptr, nullptr, nullptr},
};
