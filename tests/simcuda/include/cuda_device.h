/* What a kernel may use: the qualifiers, the coordinates of a thread, barriers, warp functions, atomics and arithmetic,
 * with CUDA's names. Barriers and warp functions know the line they stand on, so that threads which meet at different
 * ones are told. C++ only; included by cuda_runtime.h. */
#ifndef SIMCUDA_CUDA_DEVICE_H
#define SIMCUDA_CUDA_DEVICE_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <math.h>
#include <tuple>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
/* Thread-local, so that shared arrays have an address range of their own, and a symbol with a name and a size. */
#define __shared__ static thread_local

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {
    }
};
struct alignas(8) int2 {
    int x, y;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) double2 {
    double x, y;
};
static inline float2 make_float2(float x, float y) {
    return {x, y};
}
static inline float4 make_float4(float x, float y, float z, float w) {
    return {x, y, z, w};
}
static inline int2 make_int2(int x, int y) {
    return {x, y};
}
static inline int4 make_int4(int x, int y, int z, int w) {
    return {x, y, z, w};
}
static inline uint2 make_uint2(unsigned x, unsigned y) {
    return {x, y};
}
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
    return {x, y, z, w};
}
static inline double2 make_double2(double x, double y) {
    return {x, y};
}

/* Calls that the compiler makes of its own come to checked versions, too: an assembler's assignment renames them. */
#define SIMCUDA_RENAME(name) asm(".set " #name ", simcuda_" #name)
#ifdef SIMCUDA_INSTRUMENTED
SIMCUDA_RENAME(memcpy);
SIMCUDA_RENAME(memmove);
SIMCUDA_RENAME(memset);
SIMCUDA_RENAME(__ubsan_handle_out_of_bounds);
SIMCUDA_RENAME(__ubsan_handle_out_of_bounds_abort);
#endif

extern "C" {
/* The same for one thread from beginning to end, hence const; valid only inside a kernel. */
uint3 simcuda_thread_index(void) __attribute__((const));
uint3 simcuda_block_index(void) __attribute__((const));
uint3 simcuda_block_dimensions(void) __attribute__((const));
uint3 simcuda_grid_dimensions(void) __attribute__((const));
void *simcuda_dynamic_shared(void) __attribute__((const));

void simcuda_block_barrier(const char *file, int line);
int simcuda_block_barrier_count(int predicate, const char *file, int line); /* how many threads gave non-zero */
void simcuda_warp_barrier(unsigned mask, const char *file, int line);
enum simcuda_shuffle { SIMCUDA_SHUFFLE_INDEX, SIMCUDA_SHUFFLE_XOR, SIMCUDA_SHUFFLE_DOWN, SIMCUDA_SHUFFLE_UP };
uint64_t simcuda_shuffle_bits(unsigned mask, uint64_t bits, int operand, int width, enum simcuda_shuffle kind,
                              const char *file, int line);
unsigned simcuda_ballot(unsigned mask, int predicate, const char *file, int line);
enum simcuda_reduction { SIMCUDA_REDUCE_ADD, SIMCUDA_REDUCE_MIN, SIMCUDA_REDUCE_MAX };
long long simcuda_warp_reduce(unsigned mask, long long value, enum simcuda_reduction kind, const char *file, int line);
unsigned simcuda_active_mask(void);
void simcuda_before_atomic(void *address, size_t bytes); /* checks an atomic access to `bytes` bytes */

void simcuda_launch(const char *name, const void *kernel, uint3 grid, uint3 block, size_t shared_bytes,
                    struct CUstream_st *stream, void (*call)(const void *arguments), const void *arguments,
                    size_t argument_bytes);
}

#define threadIdx (simcuda_thread_index())
#define blockIdx (simcuda_block_index())
#define blockDim (simcuda_block_dimensions())
#define gridDim (simcuda_grid_dimensions())
static constexpr int warpSize = 32;

#define SIMCUDA_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

static inline void __syncthreads(SIMCUDA_SITE) {
    simcuda_block_barrier(file, line);
}
static inline int __syncthreads_or(int predicate, SIMCUDA_SITE) {
    return simcuda_block_barrier_count(predicate, file, line) > 0;
}
static inline int __syncthreads_count(int predicate, SIMCUDA_SITE) {
    return simcuda_block_barrier_count(predicate, file, line);
}
static inline int __syncthreads_and(int predicate, SIMCUDA_SITE) {
    return simcuda_block_barrier_count(!predicate, file, line) == 0;
}
static inline void __syncwarp(unsigned mask = 0xffffffffu, SIMCUDA_SITE) {
    simcuda_warp_barrier(mask, file, line);
}
static inline unsigned __ballot_sync(unsigned mask, int predicate, SIMCUDA_SITE) {
    return simcuda_ballot(mask, predicate, file, line);
}
static inline int __any_sync(unsigned mask, int predicate, SIMCUDA_SITE) {
    return simcuda_ballot(mask, predicate, file, line) != 0;
}
static inline int __all_sync(unsigned mask, int predicate, SIMCUDA_SITE) {
    return simcuda_ballot(mask, !predicate, file, line) == 0;
}
static inline unsigned __activemask() {
    return simcuda_active_mask();
}
static inline int __reduce_add_sync(unsigned mask, int value, SIMCUDA_SITE) {
    return (int)simcuda_warp_reduce(mask, value, SIMCUDA_REDUCE_ADD, file, line);
}
static inline int __reduce_min_sync(unsigned mask, int value, SIMCUDA_SITE) {
    return (int)simcuda_warp_reduce(mask, value, SIMCUDA_REDUCE_MIN, file, line);
}
static inline int __reduce_max_sync(unsigned mask, int value, SIMCUDA_SITE) {
    return (int)simcuda_warp_reduce(mask, value, SIMCUDA_REDUCE_MAX, file, line);
}

template <typename T>
static inline T simcuda_shuffled(unsigned mask, T value, int operand, int width, simcuda_shuffle kind, const char *file,
                                 int line) {
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value, "a shuffle moves up to 8 bytes");
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    bits = simcuda_shuffle_bits(mask, bits, operand, width, kind, file, line);
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}
template <typename T> static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, SIMCUDA_SITE) {
    return simcuda_shuffled(mask, value, source, width, SIMCUDA_SHUFFLE_INDEX, file, line);
}
template <typename T> static inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, SIMCUDA_SITE) {
    return simcuda_shuffled(mask, value, lanes, width, SIMCUDA_SHUFFLE_XOR, file, line);
}
template <typename T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, SIMCUDA_SITE) {
    return simcuda_shuffled(mask, value, (int)delta, width, SIMCUDA_SHUFFLE_DOWN, file, line);
}
template <typename T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, SIMCUDA_SITE) {
    return simcuda_shuffled(mask, value, (int)delta, width, SIMCUDA_SHUFFLE_UP, file, line);
}

/* Atomics: the block of fibers runs on one host thread, so that a plain update is atomic; it goes through a volatile
 * pointer that the check has seen before. */
template <typename T, typename F> __attribute__((no_sanitize("thread"))) T simcuda_atomic(T *address, F update) {
    simcuda_before_atomic(address, sizeof(T));
    const T old = *address;
    *address = update(old);
    return old;
}
template <typename T> static inline T atomicAdd(T *address, T value) {
    return simcuda_atomic(address, [=](T old) { return (T)(old + value); });
}
template <typename T> static inline T atomicMax(T *address, T value) {
    return simcuda_atomic(address, [=](T old) { return old > value ? old : value; });
}
template <typename T> static inline T atomicMin(T *address, T value) {
    return simcuda_atomic(address, [=](T old) { return old < value ? old : value; });
}
template <typename T> static inline T atomicOr(T *address, T value) {
    return simcuda_atomic(address, [=](T old) { return (T)(old | value); });
}
template <typename T> static inline T atomicAnd(T *address, T value) {
    return simcuda_atomic(address, [=](T old) { return (T)(old & value); });
}
template <typename T> static inline T atomicExch(T *address, T value) {
    return simcuda_atomic(address, [=](T) { return value; });
}
template <typename T> static inline T atomicCAS(T *address, T expected, T value) {
    return simcuda_atomic(address, [=](T old) { return old == expected ? value : old; });
}

template <typename T> static inline T __ldg(const T *address) {
    return *address;
}

/* Macros, because the C library declares functions of these names. */
#define __expf(x) expf(x)
#define __exp10f(x) exp10f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __powf(x, y) powf(x, y)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)

static inline float rsqrtf(float x) {
    return 1.0f / sqrtf(x);
}
static inline double rsqrt(double x) {
    return 1.0 / sqrt(x);
}
static inline float __fdividef(float x, float y) {
    return x / y;
}
static inline float __frcp_rn(float x) {
    return 1.0f / x;
}
static inline float __fdiv_rn(float x, float y) {
    return x / y;
}
static inline float __fsqrt_rn(float x) {
    return sqrtf(x);
}
static inline float __frsqrt_rn(float x) {
    return (float)(1.0 / sqrt((double)x));
}
static inline float __fmaf_rn(float x, float y, float z) {
    return fmaf(x, y, z);
}
/* Never fused with what surrounds them: the barrier to contraction is a volatile temporary. */
static inline float __fmul_rn(float x, float y) {
    volatile float product = x * y;
    return product;
}
static inline float __fadd_rn(float x, float y) {
    volatile float sum = x + y;
    return sum;
}
static inline float __fsub_rn(float x, float y) {
    volatile float difference = x - y;
    return difference;
}
static inline double __dmul_rn(double x, double y) {
    volatile double product = x * y;
    return product;
}
static inline double __dadd_rn(double x, double y) {
    volatile double sum = x + y;
    return sum;
}
static inline float __saturatef(float x) {
    return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
}

template <typename To, typename From> static inline To simcuda_bits(From value) {
    static_assert(sizeof(To) == sizeof(From), "same width");
    To bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return bits;
}
static inline int __float_as_int(float x) {
    return simcuda_bits<int>(x);
}
static inline unsigned __float_as_uint(float x) {
    return simcuda_bits<unsigned>(x);
}
static inline float __int_as_float(int x) {
    return simcuda_bits<float>(x);
}
static inline float __uint_as_float(unsigned x) {
    return simcuda_bits<float>(x);
}
static inline long long __double_as_longlong(double x) {
    return simcuda_bits<long long>(x);
}
static inline double __longlong_as_double(long long x) {
    return simcuda_bits<double>(x);
}
static inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
static inline int __clz(int x) {
    return x ? __builtin_clz((unsigned)x) : 32;
}
static inline int __ffs(int x) {
    return __builtin_ffs(x);
}
static inline unsigned __umulhi(unsigned x, unsigned y) {
    return (unsigned)((uint64_t)x * y >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return (unsigned long long)((unsigned __int128)x * y >> 64);
}

/* CUDA declares these for every pair of arithmetic types in the global namespace. */
template <typename A, typename B, typename C = typename std::common_type<A, B>::type>
static inline constexpr typename std::enable_if<std::is_arithmetic<A>::value && std::is_arithmetic<B>::value, C>::type
min(A a, B b) {
    return (C)b < (C)a ? (C)b : (C)a;
}
template <typename A, typename B, typename C = typename std::common_type<A, B>::type>
static inline constexpr typename std::enable_if<std::is_arithmetic<A>::value && std::is_arithmetic<B>::value, C>::type
max(A a, B b) {
    return (C)a < (C)b ? (C)b : (C)a;
}
using std::isfinite;
using std::isinf;
using std::isnan;

/* A launch: arguments are converted to the kernel's parameter types and copied now; the kernel runs later. */
template <typename... P> struct simcuda_call {
    void (*kernel)(P...);
    std::tuple<P...> arguments;
    static void run(const void *call) {
        const simcuda_call *c = static_cast<const simcuda_call *>(call);
        std::apply(c->kernel, c->arguments);
    }
};
template <typename... P, typename... A>
void simcuda_launch_kernel(const char *name, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes,
                           struct CUstream_st *stream, A... arguments) {
    static_assert((std::is_trivially_copyable<P>::value && ...), "kernel parameters are copied byte by byte");
    const simcuda_call<P...> call = {kernel, std::tuple<P...>(static_cast<P>(arguments)...)};
    simcuda_launch(name, reinterpret_cast<const void *>(kernel), {grid.x, grid.y, grid.z}, {block.x, block.y, block.z},
                   shared_bytes, stream, simcuda_call<P...>::run, &call, sizeof call);
}

#endif
