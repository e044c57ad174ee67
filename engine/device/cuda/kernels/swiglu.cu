/* swiglu: out[N,F] = gate sigmoid(gate) up, from gate_up[N,2F], whose rows are gate | up;
 * swiglu_backward: dgate_up[N,2F], which may take the bytes of gate_up, from dout[N,F] and gate_up. */
#include "engine/device/cuda/kernels.h"

#include "grid.cuh"
#include "sigmoid.cuh"
#include "storage.cuh"

template <int N, typename T> static __global__ void swiglu(const T *gate_up, T *out, int64_t rows, int64_t width) {
    int64_t packs = width / N;
    for (int64_t item = first_item(); item < rows * packs; item += item_stride()) {
        int64_t row = item / packs, at = 2 * row * width + (item - row * packs) * N;
        floats<N> gate = load<N>(gate_up + at), up = load<N>(gate_up + at + width);
        for (int j = 0; j < N; j++)
            gate.v[j] *= sigmoid(gate.v[j]) * up.v[j];
        store(out + item * N, gate);
    }
}

template <int N, typename T>
static __global__ void swiglu_backward(const T *dout, const T *gate_up, T *dgate_up, int64_t rows, int64_t width) {
    int64_t packs = width / N;
    for (int64_t item = first_item(); item < rows * packs; item += item_stride()) {
        int64_t row = item / packs, at = 2 * row * width + (item - row * packs) * N;
        floats<N> gate = load<N>(gate_up + at), up = load<N>(gate_up + at + width), d = load<N>(dout + item * N);
        for (int j = 0; j < N; j++) {
            float g = gate.v[j], s = sigmoid(g);
            gate.v[j] = d.v[j] * up.v[j] * s * (1 + g * (1 - s));
            up.v[j] = d.v[j] * g * s;
        }
        store(dgate_up + at, gate);
        store(dgate_up + at + width, up);
    }
}

static void queue(const launch *l, cudaStream_t stream) {
    const operand *gate_up = &l->in[0], *out = &l->out[0];
    int64_t rows = out->shape[0], width = out->shape[1];
    if (rows == 0 || width == 0)
        return;
    with_access(out->type, rows_aligned(gate_up, width) && rows_aligned(out, width), [&](auto access) {
        typedef typename decltype(access)::type T;
        constexpr int N = decltype(access)::count;
        LAUNCH((swiglu<N, T>), grid_of_items(rows * width / N), BLOCK, 0, stream, data<const T>(gate_up), data<T>(out),
               rows, width);
    });
}

static void queue_backward(const launch *l, cudaStream_t stream) {
    const operand *dout = &l->in[0], *gate_up = &l->in[1], *dgate_up = &l->out[0];
    int64_t rows = dout->shape[0], width = dout->shape[1];
    if (rows == 0 || width == 0)
        return;
    bool vectors = rows_aligned(dout, width) && rows_aligned(gate_up, width) && rows_aligned(dgate_up, width);
    with_access(dout->type, vectors, [&](auto access) {
        typedef typename decltype(access)::type T;
        constexpr int N = decltype(access)::count;
        LAUNCH((swiglu_backward<N, T>), grid_of_items(rows * width / N), BLOCK, 0, stream, data<const T>(dout),
               data<const T>(gate_up), data<T>(dgate_up), rows, width);
    });
}

extern "C" const cuda_kernel cuda_swiglu = {NULL, queue};
extern "C" const cuda_kernel cuda_swiglu_backward = {NULL, queue_backward};
