/* cross_entropy: loss[n] = logsumexp(logits) - logits[target] and dlogits[n,V] = (softmax - onehot) GRADIENT_SCALE
 * LOSS_SCALE, which may take the bytes of logits[n,V]; 0 where the target is below 0.
 *
 * A block works on one row. The first pass takes its maximum and its sum of exponentials together (each thread scales
 * its sum whenever its maximum grows) and keeps the row in shared memory as far as SHARED_BYTES reach: the second pass,
 * which writes the gradient, reads only the rest again. A vocabulary may be odd, so a row begins anywhere: elements up
 * to the first 128-bit boundary and after the last one are read singly. */
#include "engine/device/cuda/kernels.h"

#include "engine/device/update.h"

#include "reduce.cuh"
#include "storage.cuh"

#include <float.h>

enum { ROW_THREADS = 1024, SHARED_BYTES = 104 * 1024 /* two blocks in the memory of most multiprocessors */ };

/* Elements [0, head) and [tail, V) of a row are read singly, the packs of N between them as vectors. */
typedef struct row_parts {
    int64_t head, tail;
} row_parts;

template <int N, typename T> static __device__ row_parts parts_of(const T *row, int64_t vocabulary) {
    row_parts parts;
    parts.head = min((int64_t)(-(uintptr_t)row % 16 / sizeof(T)), vocabulary);
    parts.tail = parts.head + (vocabulary - parts.head) / N * N;
    return parts;
}

/* Sum of e^(logit - largest) of some logits. */
typedef struct exponentials {
    float largest, total;
} exponentials;

template <int N> static __device__ void add_logits(exponentials *sum, const floats<N> &logits) {
    float largest = sum->largest;
    for (int j = 0; j < N; j++)
        largest = fmaxf(largest, logits.v[j]);
    if (largest > sum->largest) {
        sum->total *= expf(sum->largest - largest);
        sum->largest = largest;
    }
    for (int j = 0; j < N; j++)
        sum->total += expf(logits.v[j] - largest);
}

/* Of this thread's logits. The first `kept_count` elements of the vectors are stored to `kept`. */
template <int N, typename T>
static __device__ exponentials read_row(const T *row, row_parts parts, int64_t vocabulary, T *kept,
                                        int64_t kept_count) {
    exponentials sum = {-FLT_MAX, 0}; /* finite, so that logits of -infinity add 0 */
    for (int64_t v = threadIdx.x; v < parts.head; v += blockDim.x)
        add_logits(&sum, load<1>(row + v));
    for (int64_t i = threadIdx.x * N; i < parts.tail - parts.head; i += blockDim.x * N) {
        floats<N> logits = load<N>(row + parts.head + i);
        if (i < kept_count)
            store(kept + i, logits);
        add_logits(&sum, logits);
    }
    for (int64_t v = parts.tail + threadIdx.x; v < vocabulary; v += blockDim.x)
        add_logits(&sum, load<1>(row + v));
    return sum;
}

static __device__ double scale_of(const double *scalars, const double *loss_scale) {
    return scalars[SCALAR_GRADIENT_SCALE] * (loss_scale != NULL ? loss_scale[LOSS_SCALE] : 1);
}

/* Gradients of logits from v on: e^(logit - largest) * factor, but target_value at the target. */
typedef struct gradient_formula {
    float largest, factor, target_value;
    int64_t target;
} gradient_formula;

template <int N> static __device__ floats<N> gradient_of(const gradient_formula &g, floats<N> logits, int64_t v) {
    for (int j = 0; j < N; j++) {
        float value = expf(logits.v[j] - g.largest) * g.factor;
        logits.v[j] = v + j == g.target ? g.target_value : value;
    }
    return logits;
}

template <int N, typename T>
static __device__ void write_row(const gradient_formula &g, const T *row, row_parts parts, int64_t vocabulary,
                                 const T *kept, int64_t kept_count, T *to) {
    for (int64_t v = threadIdx.x; v < parts.head; v += blockDim.x)
        store(to + v, gradient_of(g, load<1>(row + v), v));
    for (int64_t i = threadIdx.x * N; i < parts.tail - parts.head; i += blockDim.x * N) {
        int64_t v = parts.head + i;
        store(to + v, gradient_of(g, load<N>(i < kept_count ? kept + i : row + v), v));
    }
    for (int64_t v = parts.tail + threadIdx.x; v < vocabulary; v += blockDim.x)
        store(to + v, gradient_of(g, load<1>(row + v), v));
}

template <int N, typename T> static __device__ void clear_row(row_parts parts, int64_t vocabulary, T *to) {
    floats<N> zeros = {};
    floats<1> zero = {};
    for (int64_t v = threadIdx.x; v < parts.head; v += blockDim.x)
        store(to + v, zero);
    for (int64_t v = parts.head + threadIdx.x * N; v < parts.tail; v += blockDim.x * N)
        store(to + v, zeros);
    for (int64_t v = parts.tail + threadIdx.x; v < vocabulary; v += blockDim.x)
        store(to + v, zero);
}

/* kept_count: elements of a row that shared memory holds, a multiple of N. */
template <int N, typename T>
static __global__ void __launch_bounds__(ROW_THREADS)
    cross_entropy(const T *logits, const int32_t *targets, const double *scalars, const double *loss_scale, float *loss,
                  T *dlogits, int64_t rows, int64_t vocabulary, int64_t kept_count) {
    __shared__ float partial[1][WARPS], target_value;
    DYNAMIC_SHARED(T, kept);
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const T *from = logits + row * vocabulary;
        T *to = dlogits != NULL ? dlogits + row * vocabulary : NULL;
        row_parts parts = parts_of<N>(from, vocabulary);
        int64_t target = targets[row];
        if (target < 0) { /* for all threads of the block */
            if (threadIdx.x == 0)
                loss[row] = 0;
            if (to != NULL)
                clear_row<N>(parts, vocabulary, to);
            continue;
        }
        float target_logit = threadIdx.x == 0 ? widen(from[target]) : 0; /* before it is overwritten */
        exponentials sum = read_row<N>(from, parts, vocabulary, kept, kept_count);
        float largest = block_max(sum.largest, partial);
        float total = block_sum(sum.total * expf(sum.largest - largest), partial);
        double scale = scale_of(scalars, loss_scale);
        if (threadIdx.x == 0) {
            float below = largest - target_logit;
            loss[row] = below + logf(total);
            target_value = (float)((exp(-(double)below) / (double)total - 1) * scale);
        }
        if (to == NULL)
            continue;
        __syncthreads();
        gradient_formula g = {largest, (float)(scale / (double)total), target_value, target};
        write_row<N>(g, from, parts, vocabulary, kept, kept_count, to); /* target_value stays till all meet again */
    }
}

static void queue(const launch *l, cudaStream_t stream) {
    const operand *logits = &l->in[0], *dlogits = &l->out[1];
    int64_t rows = logits->shape[0], vocabulary = logits->shape[1];
    if (rows == 0)
        return;
    bool vectors = dlogits->data == NULL || ((uintptr_t)logits->data - (uintptr_t)dlogits->data) % 16 == 0;
    with_access(logits->type, vectors, [&](auto access) {
        typedef typename decltype(access)::type T;
        constexpr int N = decltype(access)::count;
        int64_t fits = minimum(vocabulary, SHARED_BYTES / (int64_t)sizeof(T)) / N * N;
        int64_t kept = dlogits->data != NULL ? fits : 0;
        unsigned threads = (unsigned)minimum(ROW_THREADS, round_up(divide_up(vocabulary, N), WARP));
        LAUNCH((cross_entropy<N, T>), grid_of(rows), threads, (size_t)kept * sizeof(T), stream, data<const T>(logits),
               data<const int32_t>(&l->in[1]), data<const double>(&l->in[2]), data<const double>(&l->in[3]),
               data<float>(&l->out[0]), data<T>(dlogits), rows, vocabulary, kept);
    });
}

extern "C" const cuda_kernel cuda_cross_entropy = {NULL, queue};
