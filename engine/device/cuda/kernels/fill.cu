/* fill: every element of out, of any shape, becomes attributes.value. */
#include "engine/device/cuda/kernels.h"

#include "grid.cuh"
#include "storage.cuh"

template <int N, typename T> static __global__ void fill(float value, T *out, int64_t count) {
    floats<N> all;
    for (int j = 0; j < N; j++)
        all.v[j] = value;
    for (int64_t item = first_item(); item * N < count; item += item_stride()) {
        int64_t i = item * N;
        if (i + N <= count)
            store(out + i, all);
        else
            for (; i < count; i++)
                narrow(value, &out[i]);
    }
}

static void queue(const launch *l, cudaStream_t stream) {
    const operand *out = &l->out[0];
    int64_t count = operand_count(out);
    if (count == 0)
        return;
    with_access(out->type, rows_aligned(out, 0), [&](auto access) {
        typedef typename decltype(access)::type T;
        constexpr int N = decltype(access)::count;
        LAUNCH((fill<N, T>), grid_of_items(divide_up(count, N)), BLOCK, 0, stream, (float)l->attributes.value,
               data<T>(out), count);
    });
}

extern "C" const cuda_kernel cuda_fill = {NULL, queue};
