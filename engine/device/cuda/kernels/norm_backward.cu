/* norm_backward: dsum[N,C] = the norm's own gradient + the input dsum[N,C]; dweight[C] and dbias[C] (+)= sums over
 * rows; from dnormed[N,C], sum[N,C] (s), statistics[N,2] and weight[C]. The output dsum may take the bytes of dnormed.
 *
 *   value = (s - mean) rstd,  d = dnormed weight,  dweight = sum over rows of dnormed value,  dbias = of dnormed
 *   dsum = rstd (d - mean of d over the row (layer only) - value * mean of d value over the row) + dsum
 *
 * A block works on one tile of rows (partial_sums.cuh), blockDim.x threads a row and blockDim.y rows at once. The sums
 * for weight and bias stay in shared memory until its rows are done; so do the rows between their two uses, and the
 * weight, as far as SHARED_BYTES reach. What does not fit is in global memory: same order, same bits. */
#include "engine/device/cuda/kernels.h"

#include "partial_sums.cuh"
#include "reduce.cuh"

enum { SHARED_BYTES = 160 * 1024, SHARED_BYTES_OF_ROWS = 80 * 1024 /* several at once */, TILE_ROWS = 32 };

template <typename T> struct norm_backward_operands {
    const T *dnormed, *dsum_in, *s, *weight;
    const float *statistics;
    T *dsum;
    float *weight_sums, *bias_sums; /* [tiles, C], in the workspace */
};

typedef struct norm_backward_shape {
    int64_t rows, width;
    partial_tiles tiles;
    bool layer, bias;
    bool keeps_sums, keeps_rows, keeps_weight; /* in shared memory */
} norm_backward_shape;

/* Where a thread finds its row, and its columns' sums. */
template <typename T> struct row_places {
    const T *dnormed, *s, *weight;
    T *kept_dnormed, *kept_s; /* NULL: not kept */
    float *weight_sums, *bias_sums;
    float mean, rstd;
};

/* means: this thread's part of the sums of d, and of d value. */
template <int N, typename T>
static __device__ void reduce_row(const row_places<T> &p, int64_t width, float (&means)[2]) {
    for (int64_t c = threadIdx.x * N; c < width; c += blockDim.x * N) {
        floats<N> d = load<N>(p.dnormed + c), s = load<N>(p.s + c), weight = load<N>(p.weight + c);
        floats<N> weight_sum = load<N>(p.weight_sums + c), bias_sum = load_if<N>(p.bias_sums != NULL, p.bias_sums, c);
        if (p.kept_s != NULL) {
            store(p.kept_dnormed + c, d);
            store(p.kept_s + c, s);
        }
        for (int j = 0; j < N; j++) {
            float value = (s.v[j] - p.mean) * p.rstd, weighted = d.v[j] * weight.v[j];
            means[0] += weighted;
            means[1] += weighted * value;
            weight_sum.v[j] += d.v[j] * value;
            bias_sum.v[j] += d.v[j];
        }
        store(p.weight_sums + c, weight_sum);
        if (p.bias_sums != NULL)
            store(p.bias_sums + c, bias_sum);
    }
}

template <int N, typename T>
static __device__ void write_row(const row_places<T> &p, const T *dsum_in, T *dsum, int64_t width,
                                 const float (&means)[2]) {
    const T *dnormed = p.kept_s != NULL ? p.kept_dnormed : p.dnormed, *s_row = p.kept_s != NULL ? p.kept_s : p.s;
    for (int64_t c = threadIdx.x * N; c < width; c += blockDim.x * N) {
        floats<N> d = load<N>(dnormed + c), s = load<N>(s_row + c), weight = load<N>(p.weight + c);
        floats<N> total = load_if<N>(dsum_in != NULL, dsum_in, c);
        for (int j = 0; j < N; j++) {
            float value = (s.v[j] - p.mean) * p.rstd;
            total.v[j] += (d.v[j] * weight.v[j] - means[0] - value * means[1]) * p.rstd;
        }
        store(dsum + c, total);
    }
}

/* Adds up what the block's blockDim.y rows at once summed. */
template <int N> static __device__ void write_sums(const float *sums, int64_t stride, int64_t width, float *to) {
    int threads = (int)(blockDim.x * blockDim.y);
    for (int64_t c = (threadIdx.y * blockDim.x + threadIdx.x) * N; c < width; c += threads * N) {
        floats<N> total = load<N>(sums + c);
        for (int y = 1; y < (int)blockDim.y; y++) {
            floats<N> more = load<N>(sums + y * stride + c);
            for (int j = 0; j < N; j++)
                total.v[j] += more.v[j];
        }
        store(to + c, total);
    }
}

template <int N> static __device__ void clear(float *to, int64_t width) {
    floats<N> zero = {};
    for (int64_t c = threadIdx.x * N; c < width; c += blockDim.x * N)
        store(to + c, zero);
}

/* A block's part of shared memory is: sums for weight and bias, [y, C] each; dnormed and s, [y, C] each; weight. */
template <int N, typename T> static __global__ void norm_backward(norm_backward_operands<T> o, norm_backward_shape n) {
    __shared__ float partial[2][WARPS];
    DYNAMIC_SHARED(float, shared_sums);
    int64_t tile = blockIdx.x, sums = n.keeps_sums ? (n.bias ? 2 : 1) * blockDim.y * n.width : 0;
    T *shared_rows = reinterpret_cast<T *>(shared_sums + sums);
    row_places<T> p = {};
    float *weight_sums = o.weight_sums + tile * n.width, *bias_sums = n.bias ? o.bias_sums + tile * n.width : NULL;
    p.weight_sums = n.keeps_sums ? shared_sums + threadIdx.y * n.width : weight_sums;
    if (n.bias)
        p.bias_sums = n.keeps_sums ? p.weight_sums + blockDim.y * n.width : bias_sums;
    if (n.keeps_rows) {
        p.kept_dnormed = shared_rows + threadIdx.y * n.width;
        p.kept_s = p.kept_dnormed + blockDim.y * n.width;
    }
    p.weight = o.weight;
    clear<N>(p.weight_sums, n.width);
    if (n.bias)
        clear<N>(p.bias_sums, n.width);
    if (n.keeps_weight) {
        T *kept = shared_rows + 2 * blockDim.y * n.width;
        for (int64_t c = (threadIdx.y * blockDim.x + threadIdx.x) * N; c < n.width; c += blockDim.x * blockDim.y * N)
            store(kept + c, load<N>(o.weight + c));
        p.weight = kept;
        __syncthreads();
    }
    int64_t end = min((tile + 1) * n.tiles.rows, n.rows);
    for (int64_t first = tile * n.tiles.rows; first < end; first += blockDim.y) {
        int64_t row = first + threadIdx.y, at = row * n.width;
        int64_t width = row < end ? n.width : 0; /* all threads meet in the sums */
        if (width > 0) {
            p.dnormed = o.dnormed + at, p.s = o.s + at;
            p.mean = o.statistics[2 * row], p.rstd = o.statistics[2 * row + 1];
        }
        float means[2] = {0, 0};
        reduce_row<N>(p, width, means);
        row_sum(means, partial);
        means[0] = n.layer ? means[0] / (float)n.width : 0;
        means[1] /= (float)n.width;
        write_row<N>(p, o.dsum_in != NULL ? o.dsum_in + at : NULL, o.dsum + at, width, means);
    }
    if (!n.keeps_sums)
        return; /* they are where they belong */
    __syncthreads();
    constexpr int F = N == 1 ? 1 : per_vector<float>::count;
    write_sums<F>(shared_sums, n.width, n.width, weight_sums);
    if (n.bias)
        write_sums<F>(shared_sums + blockDim.y * n.width, n.width, n.width, bias_sums);
}

static size_t workspace(const launch *l) {
    int64_t sums = l->out[2].data != NULL ? 2 : 1;
    int64_t tiles = partial_tiles_of(l->in[0].shape[0], TILE_ROWS).count;
    return (size_t)(sums * tiles * l->in[0].shape[1]) * sizeof(float);
}

/* Decides what is kept in shared memory, and how many rows a block works on at once. Returns the bytes. */
static int64_t share(norm_backward_shape *n, dim3 *block, int64_t element_bytes) {
    int64_t sums = (n->bias ? 2 : 1) * n->width * (int64_t)sizeof(float), rows = 2 * n->width * element_bytes;
    int64_t weight = n->width * element_bytes;
    while (block->y > 1 && block->y * (sums + rows) + weight > SHARED_BYTES_OF_ROWS)
        block->y /= 2;
    n->keeps_sums = block->y * sums <= SHARED_BYTES;
    int64_t bytes = n->keeps_sums ? block->y * sums : 0;
    n->keeps_rows = bytes + block->y * rows <= SHARED_BYTES;
    bytes += n->keeps_rows ? block->y * rows : 0;
    n->keeps_weight = n->keeps_rows && bytes + weight <= SHARED_BYTES;
    return bytes + (n->keeps_weight ? weight : 0);
}

template <int N, typename T>
static void queue_rows(const launch *l, norm_backward_shape n, norm_backward_operands<T> o, cudaStream_t stream) {
    dim3 block = row_block(n.width / N);
    int64_t shared = share(&n, &block, (int64_t)sizeof(T));
    if (n.rows > 0)
        LAUNCH((norm_backward<N, T>), (unsigned)n.tiles.count, block, (size_t)shared, stream, o, n);
    queue_partial_sums<T>(o.weight_sums, n.tiles.count, n.width, launch_adds(l, 1), &l->out[1], stream);
    if (n.bias)
        queue_partial_sums<T>(o.bias_sums, n.tiles.count, n.width, launch_adds(l, 2), &l->out[2], stream);
}

static void queue(const launch *l, cudaStream_t stream) {
    const operand *dnormed = &l->in[0], *dsum_in = &l->in[1], *s = &l->in[2], *weight = &l->in[4], *dsum = &l->out[0];
    norm_backward_shape n = {};
    n.rows = dnormed->shape[0], n.width = dnormed->shape[1];
    n.tiles = partial_tiles_of(n.rows, TILE_ROWS);
    n.layer = l->attributes.norm == NORM_LAYER, n.bias = l->out[2].data != NULL;
    bool vectors = rows_aligned(dnormed, n.width) && rows_aligned(dsum_in, n.width) && rows_aligned(s, n.width) &&
                   rows_aligned(weight, 0) && rows_aligned(dsum, n.width);
    with_access(dnormed->type, vectors, [&](auto access) {
        typedef typename decltype(access)::type T;
        constexpr int N = decltype(access)::count;
        float *sums = static_cast<float *>(l->workspace);
        norm_backward_operands<T> o = {data<const T>(dnormed),
                                       data<const T>(dsum_in),
                                       data<const T>(s),
                                       data<const T>(weight),
                                       data<const float>(&l->in[3]),
                                       data<T>(dsum),
                                       sums,
                                       sums + n.tiles.count * n.width};
        queue_rows<N>(l, n, o, stream);
    });
}

extern "C" const cuda_kernel cuda_norm_backward = {workspace, queue};
