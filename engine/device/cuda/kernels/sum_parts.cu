/* Sums of parts in the order that comm/collectives.h promises (engine/device/part_sum.h). */
#include "engine/device/cuda/kernels.h"

#include "paired.cuh"

enum { LEVELS = 10 }; /* sums of 1, 2, 4, ... runs that wait for their right neighbour */

template <int N> static __device__ void add(floats<N> *to, const floats<N> &from) {
#pragma unroll
    for (int j = 0; j < N; j++)
        to->v[j] += from.v[j];
}

/* The sum of run number `run` joins those to its left as a binary counter counts: afterwards it covers all runs since
 * the last that is a multiple of the greatest power of two in run + 1. */
template <int N> static __device__ void carry(floats<N> (&waiting)[LEVELS], floats<N> *sum, int run) {
    bool carries = true;
#pragma unroll
    for (int level = 0; level < LEVELS; level++) {
        if (!carries)
            continue;
        if ((run >> level & 1) != 0) {
            floats<N> left = waiting[level];
            add(&left, *sum);
            *sum = left;
        } else {
            waiting[level] = *sum;
            carries = false;
        }
    }
}

template <int N, typename T, typename O>
static __global__ void __launch_bounds__(BLOCK)
    sum_parts(const char *parts, int64_t part_bytes, int members, int odd, O *out, bool adds, int64_t count) {
    for (int64_t item = first_item(); item < count / N; item += item_stride()) {
        const int64_t i = item * N;
        const bool whole = whole_warp(item, count / N);
        floats<N> waiting[LEVELS], sum = {};
        for (int first = 0; first < members; first += odd) {
            sum = load<N>((const T *)(parts + first * part_bytes) + i);
            for (int member = first + 1; member < first + odd; member++)
                add(&sum, load<N>((const T *)(parts + member * part_bytes) + i));
            carry(waiting, &sum, first / odd);
        }
        if (adds) {
            floats<N> before = load_paired<N>(whole, out + i);
            add(&before, sum);
            sum = before;
        }
        store_paired(whole, out + i, sum);
    }
}

template <int N, typename T, typename O>
static void queue_sum(const part_sum *s, int64_t first, int64_t count, cudaStream_t stream) {
    if (count == 0)
        return;
    LAUNCH((sum_parts<N, T, O>), grid_of_items(count / N), BLOCK, 0, stream,
           (const char *)s->parts + first * (int64_t)sizeof(T), s->part_bytes, s->members, s->odd, (O *)s->out + first,
           s->adds, count);
}

void cuda_sum_parts(const part_sum *s, cudaStream_t stream) {
    with_storage(s->part_type, [&](auto part) {
        typedef decltype(part) T;
        with_gradient_storage<T>(s->out_type, [&](auto result) {
            typedef decltype(result) O;
            const bool vectors = (uintptr_t)s->parts % 16 == 0 && (uintptr_t)s->out % 16 == 0;
            const int64_t whole = vectors ? s->count / per_vector<T>::count * per_vector<T>::count : 0;
            queue_sum<per_vector<T>::count, T, O>(s, 0, whole, stream);
            queue_sum<1, T, O>(s, whole, s->count - whole, stream);
        });
    });
}
