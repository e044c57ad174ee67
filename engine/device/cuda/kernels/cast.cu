/* cast: out[n] = x[n], each of fp32, bf16 or fp16; to nearest, ties to even. */
#include "engine/device/cuda/kernels.h"

#include "paired.cuh"

template <int N, typename T, typename U> static __global__ void cast(const T *x, U *out, int64_t count) {
    for (int64_t item = first_item(); item * N < count; item += item_stride()) {
        int64_t i = item * N;
        const bool whole = whole_warp(item, count / N);
        if (i + N <= count)
            store_paired(whole, out + i, load_paired<N>(whole, x + i));
        else
            for (; i < count; i++)
                narrow(widen(x[i]), &out[i]);
    }
}

static void queue(const launch *l, cudaStream_t stream) {
    const operand *x = &l->in[0], *out = &l->out[0];
    int64_t count = operand_count(out);
    if (count == 0)
        return;
    bool vectors = rows_aligned(x, 0) && rows_aligned(out, 0);
    with_storage(x->type, [&](auto from) {
        typedef decltype(from) T;
        with_storage(out->type, [&](auto to) {
            typedef decltype(to) U;
            /* Whole vectors on both sides: one of the narrower type. */
            constexpr int N = (int)(16 / (sizeof(T) < sizeof(U) ? sizeof(T) : sizeof(U)));
            if (vectors)
                LAUNCH((cast<N, T, U>), grid_of_items(divide_up(count, N)), BLOCK, 0, stream, data<const T>(x),
                       data<U>(out), count);
            else
                LAUNCH((cast<1, T, U>), grid_of_items(count), BLOCK, 0, stream, data<const T>(x), data<U>(out), count);
        });
    });
}

extern "C" const cuda_kernel cuda_cast = {NULL, queue};
