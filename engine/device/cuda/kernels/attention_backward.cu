/* The gradient of attention.
 *
 *   in   dout[N, H D], qkv[N, (H + 2 K) D], out[N, H D] of type S, logsumexp[N, H] fp32      out  dqkv[N, (H + 2 K) D]
 *
 * With p = exp(score - logsumexp), dp = dout v^T and delta = the sum of dout * out over a head (Dao et al.,
 * FlashAttention, 2022):  ds = p (dp - delta),  dq = scale ds k,  dk = scale ds^T q,  dv = p^T dout.
 *
 * Three kernels. The first writes delta to the workspace. The second takes 64 keys of one key head, a warp 16 of them,
 * and walks over all queries that see them, of all query heads of the group; the third takes 64 queries of one head and
 * walks over their keys. Each sum then has one owner and a fixed order; the price against summing dq with atomic
 * additions is that two of five products are computed twice. */
#include "engine/device/cuda/kernels/attention_tiles.cuh"

/* Rows of the tiles walked over: with more, the results of wide heads do not fit in registers. */
template <typename S, int PADDED> struct backward_tiles {
    static constexpr int STEP = sizeof(S) == 4 && PADDED > 96 ? 16 : 32;
};

/* ---- delta ---- */

/* delta[token][head]; `lanes` neighbouring lanes, a power of two, share a head and take 16 bytes each. */
template <typename S>
static __global__ void __launch_bounds__(THREADS, 2)
    sum_products(int64_t rows, int head_width, int lanes, bool aligned, const S *dout, const S *out, float *delta) {
    constexpr int CHUNK = 16 / (int)sizeof(S);
    const int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x, row = thread / lanes;
    const int column = (int)(thread % lanes) * CHUNK;
    const int64_t at = row * head_width + column;
    float sum = 0;
    if (row < rows && column < head_width) {
        if (aligned) {
            const floats<CHUNK> a = load<CHUNK>(dout + at), b = load<CHUNK>(out + at);
#pragma unroll
            for (int i = 0; i < CHUNK; i++)
                sum = fmaf(a.v[i], b.v[i], sum);
        } else {
            for (int i = 0; i < CHUNK && column + i < head_width; i++)
                sum = fmaf(widen(dout[at + i]), widen(out[at + i]), sum);
        }
    }
    for (int distance = lanes / 2; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, distance);
    if (row < rows && column == 0)
        delta[row] = sum;
}

/* ---- keys and values ---- */

/* logsumexp, in units of log2, and delta of the queries first ... first + STEP - 1; a query beyond the sequence gets
 * infinity, so that its p is 0. */
template <int STEP>
static __device__ void load_statistics(float *logsumexp2, float *delta, const float *logsumexp_source,
                                       const float *delta_source, int first, const attention_shape &s) {
    for (int i = (int)threadIdx.x; i < STEP; i += THREADS) {
        const bool inside = first + i < s.sequence;
        const int64_t at = (int64_t)(first + i) * s.heads;
        logsumexp2[i] = inside ? logsumexp_source[at] * LOG2_E : INFINITY;
        delta[i] = inside ? delta_source[at] : 0;
    }
}

/* Scores, transposed, become p, and dp becomes ds. key: the lane's first key; query: of the tile's first column. */
template <int STEP>
static __device__ void differentiate_columns(float (&p)[STEP / 8][4], float (&dp)[STEP / 8][4], const float *logsumexp2,
                                             const float *delta, const attention_shape &s, int key, int query) {
    const float scale = s.scale * LOG2_E;
#pragma unroll
    for (int n = 0; n < STEP / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int column = 8 * n + lane_id() % 4 * 2 + i % 2;
            const bool seen = !s.causal || key + i / 2 * 8 <= query + column;
            p[n][i] = seen ? exp2f(p[n][i] * scale - logsumexp2[column]) : 0;
            dp[n][i] = p[n][i] * (dp[n][i] - delta[column]);
        }
}

template <typename S, int PADDED>
static __global__ void __launch_bounds__(THREADS, 2)
    differentiate_keys(attention_shape s, const S *dout, const S *qkv, const float *logsumexp, const float *delta,
                       S *dqkv) {
    constexpr int ROW = tile<S, PADDED>::ROW, STEP = backward_tiles<S, PADDED>::STEP;
    DYNAMIC_SHARED(S, keys);
    __shared__ float tile_logsumexp2[STEP], tile_delta[STEP];
    S *values = keys + TILE_ROWS * ROW, *queries = values + TILE_ROWS * ROW, *gradients = queries + STEP * ROW;
    const attention_place at = place_of(s, s.kv_heads, false);
    const int group = s.heads / s.kv_heads, own = warp_id() * WARP_ROWS, key = at.first + own + lane_id() / 4;
    const int64_t key_at = (int64_t)(s.heads + at.head) * s.head_width;
    const int64_t value_at = key_at + (int64_t)s.kv_heads * s.head_width;
    const S *sequence = qkv + at.first_token * s.qkv_row;
    float dk[PADDED / 8][4] = {}, dv[PADDED / 8][4] = {};

    load_tile<S, PADDED, TILE_ROWS>(keys, sequence + key_at, s.qkv_row, at.first, s);
    load_tile<S, PADDED, TILE_ROWS>(values, sequence + value_at, s.qkv_row, at.first, s);
    for (int head = at.head * group; head < (at.head + 1) * group; head++) {
        const S *query_source = sequence + (int64_t)head * s.head_width;
        const S *gradient_source = dout + at.first_token * s.out_row + (int64_t)head * s.head_width;
        const int64_t statistics_at = at.first_token * s.heads + head;
        for (int query = s.causal ? at.first : 0; query < s.sequence; query += STEP) {
            float p[STEP / 8][4], ds[STEP / 8][4];
            __syncthreads(); /* all are done with the tiles before */
            load_tile<S, PADDED, STEP>(queries, query_source, s.qkv_row, query, s);
            load_tile<S, PADDED, STEP>(gradients, gradient_source, s.out_row, query, s);
            load_statistics<STEP>(tile_logsumexp2, tile_delta, logsumexp + statistics_at, delta + statistics_at, query,
                                  s);
            copy_async_wait(0);
            __syncthreads();
            multiply_rows<S, PADDED, STEP>(p, keys + own * ROW, queries);
            multiply_rows<S, PADDED, STEP>(ds, values + own * ROW, gradients);
            differentiate_columns<STEP>(p, ds, tile_logsumexp2, tile_delta, s, key, query);
            multiply_results<S, PADDED, STEP>(dv, p, gradients);
            multiply_results<S, PADDED, STEP>(dk, ds, queries);
        }
    }

    S *result = dqkv + at.first_token * s.qkv_row;
    const float scale[2] = {s.scale, s.scale}, one[2] = {1, 1};
    __syncwarp(); /* a warp's own rows of keys and values, which nobody else reads, now take the results */
    round_to_rows<S, PADDED>(keys + own * ROW, dk, scale);
    round_to_rows<S, PADDED>(values + own * ROW, dv, one);
    store_rows<S, PADDED>(keys + own * ROW, result + key_at, s.qkv_row, at.first + own, s);
    store_rows<S, PADDED>(values + own * ROW, result + value_at, s.qkv_row, at.first + own, s);
}

/* ---- queries ---- */

/* Scores become p, and dp becomes ds. Of the lane's rows logsumexp2 and delta; row: its first query; key: of the tile's
 * first column. Keys beyond the sequence have no k to contribute, but their p might overflow. */
template <int STEP>
static __device__ void differentiate_rows(float (&p)[STEP / 8][4], float (&dp)[STEP / 8][4],
                                          const float (&logsumexp2)[2], const float (&delta)[2],
                                          const attention_shape &s, int row, int key) {
    const float scale = s.scale * LOG2_E;
#pragma unroll
    for (int n = 0; n < STEP / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int column = key + 8 * n + lane_id() % 4 * 2 + i % 2, half = i / 2;
            const bool seen = column < s.sequence && (!s.causal || column <= row + half * 8);
            dp[n][i] = seen ? exp2f(p[n][i] * scale - logsumexp2[half]) * (dp[n][i] - delta[half]) : 0;
        }
}

template <typename S, int PADDED>
static __global__ void __launch_bounds__(THREADS, 2)
    differentiate_queries(attention_shape s, const S *dout, const S *qkv, const float *logsumexp, const float *delta,
                          S *dqkv) {
    constexpr int ROW = tile<S, PADDED>::ROW, STEP = backward_tiles<S, PADDED>::STEP;
    DYNAMIC_SHARED(S, queries);
    S *gradients = queries + TILE_ROWS * ROW, *keys = gradients + TILE_ROWS * ROW, *values = keys + STEP * ROW;
    const attention_place at = place_of(s, s.heads, s.causal);
    const int own = warp_id() * WARP_ROWS, row = at.first + own + lane_id() / 4;
    const int64_t query_at = (int64_t)at.head * s.head_width;
    const int64_t key_at = (int64_t)(s.heads + at.head / (s.heads / s.kv_heads)) * s.head_width;
    const int64_t value_at = key_at + (int64_t)s.kv_heads * s.head_width;
    const S *sequence = qkv + at.first_token * s.qkv_row;
    const int end = s.causal ? min(s.sequence, at.first + TILE_ROWS) : s.sequence;
    float dq[PADDED / 8][4] = {}, row_logsumexp2[2], row_delta[2];
    for (int half = 0; half < 2; half++) {
        const bool inside = row + 8 * half < s.sequence;
        const int64_t statistics_at = (at.first_token + row + 8 * half) * s.heads + at.head;
        row_logsumexp2[half] = inside ? logsumexp[statistics_at] * LOG2_E : INFINITY;
        row_delta[half] = inside ? delta[statistics_at] : 0;
    }

    load_tile<S, PADDED, TILE_ROWS>(queries, sequence + query_at, s.qkv_row, at.first, s);
    load_tile<S, PADDED, TILE_ROWS>(gradients, dout + at.first_token * s.out_row + query_at, s.out_row, at.first, s);
    for (int key = 0; key < end; key += STEP) {
        float p[STEP / 8][4], ds[STEP / 8][4];
        __syncthreads(); /* all are done with the tiles before */
        load_tile<S, PADDED, STEP>(keys, sequence + key_at, s.qkv_row, key, s);
        load_tile<S, PADDED, STEP>(values, sequence + value_at, s.qkv_row, key, s);
        copy_async_wait(0);
        __syncthreads();
        multiply_rows<S, PADDED, STEP>(p, queries + own * ROW, keys);
        multiply_rows<S, PADDED, STEP>(ds, gradients + own * ROW, values);
        differentiate_rows<STEP>(p, ds, row_logsumexp2, row_delta, s, row, key);
        multiply_results<S, PADDED, STEP>(dq, ds, keys);
    }

    const float scale[2] = {s.scale, s.scale};
    __syncwarp(); /* a warp's own rows of queries, which nobody else reads, now take the results */
    round_to_rows<S, PADDED>(queries + own * ROW, dq, scale);
    store_rows<S, PADDED>(queries + own * ROW, dqkv + at.first_token * s.qkv_row + query_at, s.qkv_row, at.first + own,
                          s);
}

/* ---- launches ---- */

static int64_t head_rows(const launch *l) {
    return l->in[1].shape[0] * l->attributes.heads;
}

static size_t workspace_attention_backward(const launch *l) {
    return (size_t)head_rows(l) * sizeof(float);
}

template <typename S> static void queue_delta(const launch *l, const attention_shape &s, cudaStream_t stream) {
    int lanes = 1;
    while (lanes * 16 < s.head_width * (int)sizeof(S))
        lanes *= 2;
    const int64_t rows = head_rows(l), blocks = (rows * lanes + THREADS - 1) / THREADS;
    LAUNCH((sum_products<S>), (unsigned)blocks, THREADS, 0, stream, rows, s.head_width, lanes, s.aligned,
           (const S *)l->in[0].data, (const S *)l->in[2].data, (float *)l->workspace);
}

template <typename S, int PADDED> struct backward {
    static void queue(const launch *l, cudaStream_t stream) {
        const attention_shape s = attention_shape_of(l, &l->in[1]);
        const int bytes = 2 * (TILE_ROWS + backward_tiles<S, PADDED>::STEP) * tile<S, PADDED>::ROW * (int)sizeof(S);
        const int64_t tiles = l->in[1].shape[0] / s.sequence * s.blocks;
        const S *dout = (const S *)l->in[0].data, *qkv = (const S *)l->in[1].data;
        const float *logsumexp = (const float *)l->in[3].data, *delta = (const float *)l->workspace;
        S *dqkv = (S *)l->out[0].data;
        queue_delta<S>(l, s, stream);
        LAUNCH((differentiate_keys<S, PADDED>), (unsigned)(tiles * s.kv_heads), THREADS, bytes, stream, s, dout, qkv,
               logsumexp, delta, dqkv);
        LAUNCH((differentiate_queries<S, PADDED>), (unsigned)(tiles * s.heads), THREADS, bytes, stream, s, dout, qkv,
               logsumexp, delta, dqkv);
    }
};

static void queue_attention_backward(const launch *l, cudaStream_t stream) {
    for_type_and_width<backward>(l->in[1].type, (int)l->attributes.head_width, l, stream);
}

const cuda_kernel cuda_attention_backward = {workspace_attention_backward, queue_attention_backward};
