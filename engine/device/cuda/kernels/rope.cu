/* rope: rotates the query and key heads of qkv[N,Q] by cosine[T,D/2] and sine[T,D/2] and copies the value heads, into
 * out[N,Q], which may be qkv. A row of cosines and sines is read once, into shared memory, for SEQUENCES sequences. */
#include "engine/device/cuda/kernels.h"

#include "grid.cuh"
#include "storage.cuh"

enum { SEQUENCES = 8 };

typedef struct rope_shape {
    int64_t rows, width, rotated; /* rotated: elements of a row's query and key heads */
    int64_t sequence, groups;     /* groups of SEQUENCES sequences */
    int half;
    float sign; /* -1: the inverse */
    bool copies;
} rope_shape;

template <int N, typename T>
static __device__ void rotate_row(const rope_shape &s, const T *from, const float *cosine, const float *sine, T *to) {
    int packs = s.half / N, items = (int)(s.rotated / 2 / N);
    for (int item = threadIdx.x; item < items; item += blockDim.x) {
        int head = item / packs, j = (item - head * packs) * N;
        int64_t at = (int64_t)head * 2 * s.half + j;
        floats<N> first = load<N>(from + at), second = load<N>(from + at + s.half);
        for (int i = 0; i < N; i++) {
            float a = first.v[i], b = second.v[i];
            first.v[i] = a * cosine[j + i] - b * sine[j + i];
            second.v[i] = b * cosine[j + i] + a * sine[j + i];
        }
        store(to + at, first);
        store(to + at + s.half, second);
    }
}

template <int N, typename T>
static __global__ void rope(rope_shape s, const T *qkv, const float *cosines, const float *sines, T *out) {
    DYNAMIC_SHARED(float, cosine);
    float *sine = cosine + s.half;
    for (int64_t slot = blockIdx.x; slot < s.groups * s.sequence; slot += gridDim.x) {
        int64_t group = slot / s.sequence, position = slot - group * s.sequence;
        for (int j = threadIdx.x; j < s.half; j += blockDim.x) {
            cosine[j] = cosines[position * s.half + j];
            sine[j] = s.sign * sines[position * s.half + j];
        }
        __syncthreads();
        for (int i = 0; i < SEQUENCES; i++) {
            int64_t row = (group * SEQUENCES + i) * s.sequence + position;
            if (row >= s.rows)
                break;
            rotate_row<N>(s, qkv + row * s.width, cosine, sine, out + row * s.width);
            for (int64_t c = s.rotated + threadIdx.x * N; s.copies && c < s.width; c += blockDim.x * N)
                store(out + row * s.width + c, load<N>(qkv + row * s.width + c));
        }
        __syncthreads(); /* before cosine and sine are overwritten */
    }
}

static void queue(const launch *l, cudaStream_t stream) {
    const attributes *a = &l->attributes;
    const operand *qkv = &l->in[0], *out = &l->out[0];
    rope_shape s;
    s.rows = qkv->shape[0], s.width = qkv->shape[1];
    s.rotated = (a->heads + a->kv_heads) * a->head_width;
    s.sequence = a->sequence, s.groups = divide_up(s.rows, s.sequence * SEQUENCES);
    s.half = (int)(a->head_width / 2);
    s.sign = a->inverse ? -1.0f : 1.0f;
    s.copies = out->data != qkv->data;
    if (s.rows == 0)
        return;
    with_access(qkv->type, rows_aligned(qkv, s.half) && rows_aligned(out, s.half), [&](auto access) {
        typedef typename decltype(access)::type T;
        constexpr int N = decltype(access)::count;
        LAUNCH((rope<N, T>), grid_of(s.groups * s.sequence), BLOCK, 2 * s.half * sizeof(float), stream, s,
               data<const T>(qkv), data<const float>(&l->in[1]), data<const float>(&l->in[2]), data<T>(out));
    });
}

extern "C" const cuda_kernel cuda_rope = {NULL, queue};
