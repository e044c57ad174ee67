/* Operations that compute each element of a tensor from the same element of one or two others. The formula is a struct
 * with a function `of`. The output may take the bytes of an input. */
#ifndef FSDP_ENGINE_DEVICE_CUDA_KERNELS_ELEMENTWISE_CUH
#define FSDP_ENGINE_DEVICE_CUDA_KERNELS_ELEMENTWISE_CUH

#include "grid.cuh"
#include "storage.cuh"

/* out[i] = formula::of(a[i]); the last count % N elements singly. */
template <typename formula, int N, typename T> static __global__ void unary(const T *a, T *out, int64_t count) {
    for (int64_t item = first_item(); item * N < count; item += item_stride()) {
        int64_t i = item * N;
        if (i + N <= count) {
            floats<N> x = load<N>(a + i);
            for (int j = 0; j < N; j++)
                x.v[j] = formula::of(x.v[j]);
            store(out + i, x);
        } else {
            for (; i < count; i++)
                narrow(formula::of(widen(a[i])), &out[i]);
        }
    }
}

/* out[i] = formula::of(a[i], b[i]). */
template <typename formula, int N, typename T>
static __global__ void binary(const T *a, const T *b, T *out, int64_t count) {
    for (int64_t item = first_item(); item * N < count; item += item_stride()) {
        int64_t i = item * N;
        if (i + N <= count) {
            floats<N> x = load<N>(a + i), y = load<N>(b + i);
            for (int j = 0; j < N; j++)
                x.v[j] = formula::of(x.v[j], y.v[j]);
            store(out + i, x);
        } else {
            for (; i < count; i++)
                narrow(formula::of(widen(a[i]), widen(b[i])), &out[i]);
        }
    }
}

static inline bool flat_aligned(const operand *o) {
    return rows_aligned(o, 0);
}

/* out[0] = formula::of(in[0]). */
template <typename formula> static void queue_unary(const launch *l, cudaStream_t stream) {
    const operand *a = &l->in[0], *out = &l->out[0];
    int64_t count = operand_count(out);
    if (count == 0)
        return;
    with_access(out->type, flat_aligned(a) && flat_aligned(out), [&](auto access) {
        typedef typename decltype(access)::type T;
        constexpr int N = decltype(access)::count;
        LAUNCH((unary<formula, N, T>), grid_of_items(divide_up(count, N)), BLOCK, 0, stream, data<const T>(a),
               data<T>(out), count);
    });
}

/* out[0] = formula::of(in[0], in[1]). */
template <typename formula> static void queue_binary(const launch *l, cudaStream_t stream) {
    const operand *a = &l->in[0], *b = &l->in[1], *out = &l->out[0];
    int64_t count = operand_count(out);
    if (count == 0)
        return;
    with_access(out->type, flat_aligned(a) && flat_aligned(b) && flat_aligned(out), [&](auto access) {
        typedef typename decltype(access)::type T;
        constexpr int N = decltype(access)::count;
        LAUNCH((binary<formula, N, T>), grid_of_items(divide_up(count, N)), BLOCK, 0, stream, data<const T>(a),
               data<const T>(b), data<T>(out), count);
    });
}

#endif
