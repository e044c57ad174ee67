/* position_backward: dpositions[P,C] (+)= for position t the sum over sequences of dout[N,C], first to last; 0 beyond
 * the sequence's end. */
#include "engine/device/cuda/kernels.h"

#include "paired.cuh"

template <int N, typename T, typename G>
static __global__ void position_backward(const T *dout, G *dpositions, int64_t rows, int64_t positions, int64_t width,
                                         int64_t sequence, bool adds) {
    int64_t packs = width / N;
    for (int64_t item = first_item(); item < positions * packs; item += item_stride()) {
        int64_t position = item / packs, column = (item - position * packs) * N;
        const bool whole = whole_warp(item, positions * packs);
        floats<N> total = {};
        if (adds)
            total = load_paired<N>(whole, dpositions + item * N);
        for (int64_t row = position; position < sequence && row < rows; row += sequence) {
            floats<N> d = load<N>(dout + row * width + column);
            for (int j = 0; j < N; j++)
                total.v[j] += d.v[j];
        }
        store_paired(whole, dpositions + item * N, total);
    }
}

static void queue(const launch *l, cudaStream_t stream) {
    const operand *dout = &l->in[0], *dpositions = &l->out[0];
    int64_t rows = dout->shape[0], positions = dpositions->shape[0], width = dpositions->shape[1];
    if (positions == 0 || width == 0)
        return;
    bool vectors = rows_aligned(dout, width) && rows_aligned(dpositions, width);
    with_access(dout->type, vectors, [&](auto access) {
        typedef typename decltype(access)::type T;
        constexpr int N = decltype(access)::count;
        with_gradient_storage<T>(dpositions->type, [&](auto stored) {
            typedef decltype(stored) G;
            LAUNCH((position_backward<N, T, G>), grid_of_items(positions * (width / N)), BLOCK, 0, stream,
                   data<const T>(dout), data<G>(dpositions), rows, positions, width, l->attributes.sequence,
                   launch_adds(l, 0));
        });
    });
}

extern "C" const cuda_kernel cuda_position_backward = {NULL, queue};
