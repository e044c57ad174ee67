/* out = softmax(q k^T scale) v per head, without ever writing the scores to memory.
 *
 *   in   qkv[N, (H + 2 K) D] of type S      out  out[N, H D] of type S, logsumexp[N, H] fp32
 *
 * A block of threads takes 64 queries of one head, a warp 16 of them, and walks over the keys tile by tile. Per query
 * the largest score so far and the sum of exponentials relative to it are kept; what was summed before shrinks when a
 * larger score turns up (Milakov and Gimelshein 2018; Dao et al., FlashAttention, 2022). While a tile of keys is
 * multiplied the values are on their way, and the other way round. The order of all sums is fixed. */
#include "engine/device/cuda/kernels/attention_tiles.cuh"

template <typename S> struct forward_tiles {
    static constexpr int KEYS = sizeof(S) == 2 ? 64 : 32; /* fp32 tiles are twice as large */
};

/* Scores in units of log2, minus infinity where a key is not to be seen. row: the lane's first query in the sequence.
 */
template <int KEYS>
static __device__ void scale_and_mask(float (&scores)[KEYS / 8][4], const attention_shape &s, int row, int key) {
    const float scale = s.scale * LOG2_E;
    const int column = key + lane_id() % 4 * 2;
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int k = column + 8 * n + i % 2, last = s.causal ? row + i / 2 * 8 : s.sequence - 1;
            scores[n][i] = k <= last && k < s.sequence ? scores[n][i] * scale : -INFINITY;
        }
}

/* Scores become exponentials relative to the largest so far; sums and results so far shrink accordingly. */
template <int KEYS, int PADDED>
static __device__ void exponentiate(float (&scores)[KEYS / 8][4], float (&o)[PADDED / 8][4], float (&largest)[2],
                                    float (&sum)[2]) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float most = largest[half], total = 0;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
            most = fmaxf(most, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
        most = row_largest(most);
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; i++) {
                scores[n][i] = exp2f(scores[n][i] - most);
                total += scores[n][i];
            }
        const float shrink = exp2f(largest[half] - most);
        largest[half] = most;
        sum[half] = sum[half] * shrink + row_sum(total);
#pragma unroll
        for (int n = 0; n < PADDED / 8; n++) {
            o[n][2 * half] *= shrink;
            o[n][2 * half + 1] *= shrink;
        }
    }
}

template <typename S, int PADDED>
static __global__ void __launch_bounds__(THREADS, 2) attend(attention_shape s, const S *qkv, S *out, float *logsumexp) {
    constexpr int KEYS = forward_tiles<S>::KEYS, ROW = tile<S, PADDED>::ROW;
    DYNAMIC_SHARED(S, queries);
    S *keys = queries + TILE_ROWS * ROW, *values = keys + KEYS * ROW, *own = queries + warp_id() * WARP_ROWS * ROW;
    const attention_place at = place_of(s, s.heads, s.causal);
    const int kv_head = at.head / (s.heads / s.kv_heads);
    const S *sequence = qkv + at.first_token * s.qkv_row;
    const S *key_source = sequence + (int64_t)(s.heads + kv_head) * s.head_width;
    const S *value_source = key_source + (int64_t)s.kv_heads * s.head_width;
    const int row = at.first + warp_id() * WARP_ROWS + lane_id() / 4;
    const int end = s.causal ? min(s.sequence, at.first + TILE_ROWS) : s.sequence;
    float o[PADDED / 8][4] = {}, largest[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};

    load_tile<S, PADDED, TILE_ROWS>(queries, sequence + (int64_t)at.head * s.head_width, s.qkv_row, at.first, s);
    load_tile<S, PADDED, KEYS>(keys, key_source, s.qkv_row, 0, s);
    for (int key = 0; key < end; key += KEYS) {
        float scores[KEYS / 8][4];
        copy_async_wait(0);
        __syncthreads(); /* the keys are there, and all are done with the values */
        load_tile<S, PADDED, KEYS>(values, value_source, s.qkv_row, key, s);
        multiply_rows<S, PADDED, KEYS>(scores, own, keys);
        scale_and_mask<KEYS>(scores, s, row, key);
        exponentiate<KEYS, PADDED>(scores, o, largest, sum);
        copy_async_wait(0);
        __syncthreads(); /* the values are there, and all are done with the keys */
        if (key + KEYS < end)
            load_tile<S, PADDED, KEYS>(keys, key_source, s.qkv_row, key + KEYS, s);
        multiply_results<S, PADDED, KEYS>(o, scores, values);
    }

    const float factor[2] = {1 / sum[0], 1 / sum[1]};
    /* A warp's own rows of queries, which it read before the last barrier and nobody else reads, take the results. */
    round_to_rows<S, PADDED>(own, o, factor);
    store_rows<S, PADDED>(own, out + at.first_token * s.out_row + (int64_t)at.head * s.head_width, s.out_row,
                          at.first + warp_id() * WARP_ROWS, s);
    for (int half = 0; half < 2; half++)
        if (lane_id() % 4 == 0 && row + 8 * half < s.sequence)
            logsumexp[(at.first_token + row + 8 * half) * s.heads + at.head] =
                (largest[half] + log2f(sum[half])) * LN_2;
}

template <typename S, int PADDED> struct forward {
    static void queue(const launch *l, cudaStream_t stream) {
        const attention_shape s = attention_shape_of(l, &l->in[0]);
        const int bytes = (TILE_ROWS + 2 * forward_tiles<S>::KEYS) * tile<S, PADDED>::ROW * (int)sizeof(S);
        const int64_t blocks = l->in[0].shape[0] / s.sequence * s.heads * s.blocks;
        LAUNCH((attend<S, PADDED>), (unsigned)blocks, THREADS, bytes, stream, s, (const S *)l->in[0].data,
               (S *)l->out[0].data, (float *)l->out[1].data);
    }
};

static void queue_attention(const launch *l, cudaStream_t stream) {
    for_type_and_width<forward>(l->in[0].type, (int)l->attributes.head_width, l, stream);
}

const cuda_kernel cuda_attention = {NULL, queue_attention};
