/* norm: normed[N,C] and statistics[N,2] = (mean, rstd) from x[N,C], weight[C] and bias[C], of s = x + residual where
 * there is a residual[N,C]; sum[N,C], which may take the bytes of x, is then s.
 *
 * blockDim.x threads share a row and a block works on blockDim.y rows at once. A row is read once and kept in shared
 * memory, as are weight and bias, each as far as SHARED_BYTES reach; what does not fit is read again. */
#include "engine/device/cuda/kernels.h"

#include "grid.cuh"
#include "reduce.cuh"
#include "storage.cuh"

/* Few blocks with many rows each, so that reading the weights is little beside the rows. */
enum { SHARED_BYTES = 96 * 1024, BLOCKS = 512 };

template <typename T> struct norm_operands {
    const T *x, *residual, *weight, *bias;
    T *normed, *sum;
    float *statistics;
};

typedef struct norm_shape {
    int64_t rows, width;
    float epsilon;
    bool layer;
    bool keeps_weights, keeps_rows; /* in shared memory */
} norm_shape;

/* s of a row: to sum where there is a residual, to `kept` unless that is NULL. Returns this thread's part of its sum
 * (layer) or of its squares (rms). */
template <int N, typename T>
static __device__ float read_row(const norm_shape &n, const T *x, const T *residual, T *sum, T *kept, int64_t width) {
    float total = 0;
    for (int64_t c = threadIdx.x * N; c < width; c += blockDim.x * N) {
        floats<N> s = load<N>(x + c);
        if (residual != NULL) {
            floats<N> r = load<N>(residual + c);
            for (int j = 0; j < N; j++)
                s.v[j] = rounded<T>(s.v[j] + r.v[j]); /* what backward will read */
            store(sum + c, s);
        }
        if (kept != NULL)
            store(kept + c, s);
        for (int j = 0; j < N; j++)
            total += n.layer ? s.v[j] : s.v[j] * s.v[j];
    }
    return total;
}

template <int N, typename T> static __device__ float row_squares(const T *s, float mean, int64_t width) {
    float total = 0;
    for (int64_t c = threadIdx.x * N; c < width; c += blockDim.x * N) {
        floats<N> values = load<N>(s + c);
        for (int j = 0; j < N; j++)
            total += (values.v[j] - mean) * (values.v[j] - mean);
    }
    return total;
}

template <int N, typename T>
static __device__ void write_row(const T *s, float mean, float rstd, const T *weight, const T *bias, T *normed,
                                 int64_t width) {
    for (int64_t c = threadIdx.x * N; c < width; c += blockDim.x * N) {
        floats<N> values = load<N>(s + c), scale = load<N>(weight + c), shift = load_if<N>(bias != NULL, bias, c);
        for (int j = 0; j < N; j++)
            values.v[j] = (values.v[j] - mean) * rstd * scale.v[j] + shift.v[j];
        store(normed + c, values);
    }
}

/* Copies n elements, by all threads of the block. */
template <int N, typename T> static __device__ void copy_to_shared(const T *from, T *to, int64_t n) {
    for (int64_t i = (threadIdx.y * blockDim.x + threadIdx.x) * N; i < n; i += blockDim.x * blockDim.y * N)
        store(to + i, load<N>(from + i));
}

template <int N, typename T> static __global__ void norm(norm_operands<T> o, norm_shape n) {
    __shared__ float partial[1][WARPS];
    DYNAMIC_SHARED(T, shared);
    T *rest = shared;      /* of shared memory */
    if (n.keeps_weights) { /* from here on weight and bias are their copies */
        copy_to_shared<N>(o.weight, rest, n.width);
        o.weight = rest, rest += n.width;
        if (o.bias != NULL) {
            copy_to_shared<N>(o.bias, rest, n.width);
            o.bias = rest, rest += n.width;
        }
        __syncthreads();
    }
    T *kept = n.keeps_rows ? rest + threadIdx.y * n.width : NULL;
    for (int64_t first = (int64_t)blockIdx.x * blockDim.y; first < n.rows; first += (int64_t)gridDim.x * blockDim.y) {
        int64_t row = first + threadIdx.y, at = row * n.width;
        int64_t width = row < n.rows ? n.width : 0; /* all threads meet in the sums */
        const T *residual = o.residual != NULL ? o.residual + at : NULL;
        T *sum = residual != NULL ? o.sum + at : NULL;
        const T *s = kept != NULL ? kept : residual != NULL ? sum : o.x + at;
        float total[1] = {read_row<N>(n, o.x + at, residual, sum, kept, width)}, mean = 0;
        row_sum(total, partial);
        if (n.layer) {
            mean = total[0] / (float)n.width;
            total[0] = row_squares<N>(s, mean, width);
            row_sum(total, partial);
        }
        float rstd = 1 / sqrtf(total[0] / (float)n.width + n.epsilon);
        write_row<N>(s, mean, rstd, o.weight, o.bias, o.normed + at, width);
        if (threadIdx.x < 2 && width > 0) /* both in one access of the warp */
            o.statistics[2 * row + threadIdx.x] = threadIdx.x == 0 ? mean : rstd;
    }
}

static void queue(const launch *l, cudaStream_t stream) {
    const operand *x = &l->in[0], *residual = &l->in[1], *weight = &l->in[2], *bias = &l->in[3];
    const operand *normed = &l->out[0], *sum = &l->out[1];
    norm_shape n;
    n.rows = x->shape[0], n.width = x->shape[1];
    n.epsilon = (float)l->attributes.epsilon, n.layer = l->attributes.norm == NORM_LAYER;
    if (n.rows == 0)
        return;
    bool vectors = rows_aligned(x, n.width) && rows_aligned(residual, n.width) && rows_aligned(weight, 0) &&
                   rows_aligned(bias, 0) && rows_aligned(normed, n.width) && rows_aligned(sum, n.width);
    with_access(x->type, vectors, [&](auto access) {
        typedef typename decltype(access)::type T;
        constexpr int N = decltype(access)::count;
        norm_operands<T> o = {data<const T>(x),       data<const T>(residual), data<const T>(weight),
                              data<const T>(bias),    data<T>(normed),         data<T>(sum),
                              data<float>(&l->out[2])};
        dim3 block = row_block(n.width / N);
        int64_t row_bytes = n.width * (int64_t)sizeof(T), rows = row_bytes * block.y;
        int64_t weights = row_bytes * (bias->data != NULL ? 2 : 1);
        n.keeps_rows = rows <= SHARED_BYTES;
        n.keeps_weights = n.keeps_rows && rows + weights <= SHARED_BYTES;
        int64_t shared = (n.keeps_rows ? rows : 0) + (n.keeps_weights ? weights : 0);
        unsigned grid = (unsigned)minimum(divide_up(n.rows, block.y), BLOCKS);
        LAUNCH((norm<N, T>), grid, block, (size_t)shared, stream, o, n);
    });
}

extern "C" const cuda_kernel cuda_norm = {NULL, queue};
