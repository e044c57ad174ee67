/* What the attention kernels are made of: tiles of one head's rows in shared memory, and products of tiles by tensor
 * core instructions, a warp for 16 rows.
 *
 * A tile is [rows][PADDED] elements; PADDED is the head width rounded up to a size for which kernels are compiled.
 * Rows beyond the sequence and columns beyond the head are zero, so that no product needs a bound. A row takes 16 bytes
 * more than its elements: then the eight rows that a fragment is read from fall on different memory banks.
 *
 * Fragments follow the PTX manual's layouts of mma.m16n8k16 (16-bit types) and mma.m16n8k8 (tf32). With g = lane / 4
 * and t = lane % 4 a lane holds, of a 16 x 8 block of results, (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1).
 *
 * fp32 is multiplied as the sum of two tf32 numbers each, leaving out the product of the two small parts: the relative
 * error is about 2^-22, that of fp32 accumulation over a few terms, at three tensor core instructions. */
#ifndef FSDP_ENGINE_DEVICE_CUDA_KERNELS_ATTENTION_TILES_CUH
#define FSDP_ENGINE_DEVICE_CUDA_KERNELS_ATTENTION_TILES_CUH

#include "engine/device/cuda/kernels.h"

#include "storage.cuh"

enum { WARPS = 4, THREADS = 32 * WARPS, WARP_ROWS = 16, TILE_ROWS = WARPS * WARP_ROWS };

/* One call of attention or its backward, as its kernels see it. Strides and offsets in elements. */
struct attention_shape {
    int64_t qkv_row, out_row; /* elements from one token to the next */
    int sequence, heads, kv_heads, head_width;
    int blocks; /* tiles of TILE_ROWS rows that a sequence has */
    float scale;
    bool causal;
    bool aligned; /* every head of every row starts at a multiple of 16 bytes */
};

/* The tile that a block of threads works on. */
struct attention_place {
    int64_t first_token; /* of its sequence */
    int first;           /* row in the sequence of the tile's first row */
    int head;
};

/* Blocks are numbered so that, with a causal mask, those with most to do start first. */
static __device__ attention_place place_of(const attention_shape &s, int heads, bool last_first) {
    const unsigned block = blockIdx.x % s.blocks, rest = blockIdx.x / s.blocks;
    const int tile = last_first ? s.blocks - 1 - (int)block : (int)block;
    return {(int64_t)(rest / heads) * s.sequence, tile * TILE_ROWS, (int)(rest % heads)};
}

static __device__ int lane_id() {
    return (int)threadIdx.x % 32;
}

static __device__ int warp_id() {
    return (int)threadIdx.x / 32;
}

/* ---- tiles ---- */

template <typename S, int PADDED> struct tile {
    static constexpr int CHUNK = 16 / (int)sizeof(S), CHUNKS = PADDED / CHUNK, ROW = PADDED + CHUNK;
};

/* Rows first ... first + ROWS - 1 of a head into shared memory; `source` is the head's first element in the sequence's
 * first row. The copies may still be under way on return: copy_async_wait. */
template <typename S, int PADDED, int ROWS>
static __device__ void load_tile(S *to, const S *source, int64_t row_stride, int first, const attention_shape &s) {
    using t = tile<S, PADDED>;
    for (int i = (int)threadIdx.x; i < ROWS * t::CHUNKS; i += THREADS) {
        const int row = i / t::CHUNKS, column = i % t::CHUNKS * t::CHUNK;
        const int inside = first + row < s.sequence ? s.head_width - column : 0; /* elements from here on that exist */
        S *chunk = to + row * t::ROW + column;
        const S *from = source + (first + row) * row_stride + column;
        if (s.aligned)
            copy_async_16(chunk, inside > 0 ? from : source, inside > 0 ? 16 : 0);
        else
            for (int c = 0; c < t::CHUNK; c++)
                narrow(c < inside ? widen(from[c]) : 0, &chunk[c]);
    }
    copy_async_commit();
}

/* A warp's 16 rows of a tile to their place in memory. */
template <typename S, int PADDED>
static __device__ void store_rows(const S *from, S *target, int64_t row_stride, int first, const attention_shape &s) {
    using t = tile<S, PADDED>;
    __syncwarp();
    for (int i = lane_id(); i < WARP_ROWS * t::CHUNKS; i += 32) {
        const int row = i / t::CHUNKS, column = i % t::CHUNKS * t::CHUNK;
        const int inside = first + row < s.sequence ? s.head_width - column : 0;
        const S *chunk = from + row * t::ROW + column;
        S *to = target + (first + row) * row_stride + column;
        if (s.aligned && inside > 0)
            store_128(to, load_128(chunk));
        else
            for (int c = 0; c < t::CHUNK && c < inside; c++)
                to[c] = chunk[c];
    }
}

static __device__ uint32_t pack_pair(float a, float b, __nv_bfloat16) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
    uint32_t bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
}

static __device__ uint32_t pack_pair(float a, float b, __half) {
    const __half2 pair = __floats2half2_rn(a, b);
    uint32_t bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
}

/* Results of a warp, times a factor per row half, rounded to a tile's rows. factor[0]: rows g, factor[1]: rows g + 8.
 */
template <typename S, int PADDED>
static __device__ void round_to_rows(S *to, const float (&c)[PADDED / 8][4], const float (&factor)[2]) {
    using t = tile<S, PADDED>;
    const int g = lane_id() / 4, pair = lane_id() % 4 * 2;
    for (int half = 0; half < 2; half++) {
        S *row = to + (g + 8 * half) * t::ROW + pair;
#pragma unroll
        for (int n = 0; n < PADDED / 8; n++) {
            const float a = c[n][2 * half] * factor[half], b = c[n][2 * half + 1] * factor[half];
            if constexpr (sizeof(S) == 4) {
                row[8 * n] = a;
                row[8 * n + 1] = b;
            } else {
                *(uint32_t *)(row + 8 * n) = pack_pair(a, b, S());
            }
        }
    }
}

/* ---- fragments ---- */

/* 16-bit storage: a product takes 16 columns of a and 16 rows of b at a time. */
template <typename S> struct fragments {
    static constexpr int DEPTH = 16;
    struct left {
        uint32_t r[4];
    };
    struct right {
        uint32_t r[4]; /* two neighbouring blocks of 8 columns */
    };
    /* a[row ... row+15][k ... k+15] */
    static __device__ left load_left(const S *a, int stride, int k) {
        left f;
        ldmatrix_x4(f.r, a + lane_id() % 16 * stride + k + lane_id() / 16 * 8);
        return f;
    }
    /* b[k][n] = tile[n][k]: 16 rows of the tile from row 0 on */
    static __device__ right load_right_rows(const S *b, int stride, int k) {
        right f;
        const int matrix = lane_id() / 8;
        ldmatrix_x4(f.r, b + (matrix / 2 * 8 + lane_id() % 8) * stride + k + matrix % 2 * 8);
        return f;
    }
    /* b[k][n] = tile[k][n]: 16 columns of the tile from column n on */
    static __device__ right load_right_columns(const S *b, int stride, int n) {
        right f;
        const int matrix = lane_id() / 8;
        ldmatrix_x4_transposed(f.r, b + (matrix % 2 * 8 + lane_id() % 8) * stride + n + matrix / 2 * 8);
        return f;
    }
    /* Results become the left factor of a further product: step i of its depth. */
    static __device__ left from_results(const float (*c)[4], int i) {
        const float(&low)[4] = c[2 * i], (&high)[4] = c[2 * i + 1];
        return {{pack_pair(low[0], low[1], S()), pack_pair(low[2], low[3], S()), pack_pair(high[0], high[1], S()),
                 pack_pair(high[2], high[3], S())}};
    }
    static __device__ void instruction(float (&c)[4], const uint32_t (&a)[4], const uint32_t *b, __nv_bfloat16) {
        mma_m16n8k16_bf16(c, a, b, c);
    }
    static __device__ void instruction(float (&c)[4], const uint32_t (&a)[4], const uint32_t *b, __half) {
        mma_m16n8k16_f16(c, a, b, c);
    }
    static __device__ void multiply(float (&c)[4], const left &a, const right &b, int block) {
        instruction(c, a.r, b.r + 2 * block, S());
    }
};

/* fp32 storage: 8 at a time, every number in two parts. */
template <> struct fragments<float> {
    static constexpr int DEPTH = 8;
    struct left {
        uint32_t big[4], small[4];
    };
    struct right {
        uint32_t big[4], small[4];
    };
    static __device__ uint32_t nearest_tf32(float x) { /* 10 bits of fraction */
        return (__float_as_uint(x) + 0x1000u) & 0xFFFFE000u;
    }
    static __device__ void split(float x, uint32_t &big, uint32_t &small) {
        big = nearest_tf32(x);
        small = nearest_tf32(x - __uint_as_float(big));
    }
    static __device__ left load_left(const float *a, int stride, int k) {
        left f;
        const float *corner = a + lane_id() / 4 * stride + k + lane_id() % 4;
        split(corner[0], f.big[0], f.small[0]);
        split(corner[8 * stride], f.big[1], f.small[1]);
        split(corner[4], f.big[2], f.small[2]);
        split(corner[8 * stride + 4], f.big[3], f.small[3]);
        return f;
    }
    static __device__ right load_right_rows(const float *b, int stride, int k) {
        right f;
        const float *corner = b + lane_id() / 4 * stride + k + lane_id() % 4;
        split(corner[0], f.big[0], f.small[0]);
        split(corner[4], f.big[1], f.small[1]);
        split(corner[8 * stride], f.big[2], f.small[2]);
        split(corner[8 * stride + 4], f.big[3], f.small[3]);
        return f;
    }
    /* The order of the terms of a product is free: depth t stands for row 2t and t + 4 for row 2t + 1, because that is
     * what a lane holds of the results that from_results takes. */
    static __device__ right load_right_columns(const float *b, int stride, int n) {
        right f;
        const float *corner = b + lane_id() % 4 * 2 * stride + n + lane_id() / 4;
        split(corner[0], f.big[0], f.small[0]);
        split(corner[stride], f.big[1], f.small[1]);
        split(corner[8], f.big[2], f.small[2]);
        split(corner[stride + 8], f.big[3], f.small[3]);
        return f;
    }
    static __device__ left from_results(const float (*c)[4], int i) {
        left f;
        split(c[i][0], f.big[0], f.small[0]);
        split(c[i][2], f.big[1], f.small[1]);
        split(c[i][1], f.big[2], f.small[2]);
        split(c[i][3], f.big[3], f.small[3]);
        return f;
    }
    static __device__ void multiply(float (&c)[4], const left &a, const right &b, int block) {
        mma_m16n8k8_tf32(c, a.small, b.big + 2 * block, c);
        mma_m16n8k8_tf32(c, a.big, b.small + 2 * block, c);
        mma_m16n8k8_tf32(c, a.big, b.big + 2 * block, c);
    }
};

/* ---- products ---- */

/* c[16][COLUMNS] = a[16][PADDED] b[COLUMNS][PADDED] transposed; a: the warp's rows of a tile, b: a tile. */
template <typename S, int PADDED, int COLUMNS>
static __device__ void multiply_rows(float (&c)[COLUMNS / 8][4], const S *a, const S *b) {
    using f = fragments<S>;
    constexpr int ROW = tile<S, PADDED>::ROW;
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; n++)
        c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0;
#pragma unroll
    for (int k = 0; k < PADDED; k += f::DEPTH) {
        const typename f::left l = f::load_left(a, ROW, k);
#pragma unroll
        for (int n = 0; n < COLUMNS; n += 16) {
            const typename f::right r = f::load_right_rows(b + n * ROW, ROW, k);
            f::multiply(c[n / 8], l, r, 0);
            f::multiply(c[n / 8 + 1], l, r, 1);
        }
    }
}

/* c[16][PADDED] += a[16][DEPTH] b[DEPTH][PADDED]; a: results of multiply_rows, b: a tile. */
template <typename S, int PADDED, int DEPTH>
static __device__ void multiply_results(float (&c)[PADDED / 8][4], const float (&a)[DEPTH / 8][4], const S *b) {
    using f = fragments<S>;
    constexpr int ROW = tile<S, PADDED>::ROW;
#pragma unroll
    for (int i = 0; i < DEPTH / f::DEPTH; i++) {
        const typename f::left l = f::from_results(a, i);
#pragma unroll
        for (int n = 0; n < PADDED; n += 16) {
            const typename f::right r = f::load_right_columns(b + i * f::DEPTH * ROW, ROW, n);
            f::multiply(c[n / 8], l, r, 0);
            f::multiply(c[n / 8 + 1], l, r, 1);
        }
    }
}

/* Sum, or largest, over the four lanes that hold one row of results. */
static __device__ float row_sum(float x) {
    x += __shfl_xor_sync(0xFFFFFFFFu, x, 1);
    return x + __shfl_xor_sync(0xFFFFFFFFu, x, 2);
}

static __device__ float row_largest(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 2));
}

/* ---- launches ---- */

static constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;

static inline attention_shape attention_shape_of(const launch *l, const operand *qkv) {
    const attributes *a = &l->attributes;
    attention_shape s = {};
    s.qkv_row = qkv->shape[1];
    s.out_row = a->heads * a->head_width;
    s.sequence = (int)a->sequence;
    s.heads = (int)a->heads;
    s.kv_heads = (int)a->kv_heads;
    s.head_width = (int)a->head_width;
    s.blocks = (int)((a->sequence + TILE_ROWS - 1) / TILE_ROWS);
    s.scale = (float)a->scale;
    s.causal = a->causal;
    s.aligned = a->head_width * dtype_bytes(qkv->type) % 16 == 0;
    for (int i = 0; i < OPERATION_INPUTS; i++) /* absent operands are NULL, which is aligned */
        s.aligned = s.aligned && (uintptr_t)l->in[i].data % 16 == 0;
    for (int o = 0; o < OPERATION_OUTPUTS; o++)
        s.aligned = s.aligned && (uintptr_t)l->out[o].data % 16 == 0;
    return s;
}

/* Calls F<storage type, padded head width>::queue(arguments ...). */
template <template <typename, int> class F, typename S, typename... A>
static void for_width(int head_width, A... arguments) {
    if (head_width <= 32)
        F<S, 32>::queue(arguments...);
    else if (head_width <= 64)
        F<S, 64>::queue(arguments...);
    else if (head_width <= 96)
        F<S, 96>::queue(arguments...);
    else
        F<S, 128>::queue(arguments...);
}

template <template <typename, int> class F, typename... A>
static void for_type_and_width(dtype type, int head_width, A... arguments) {
    if (type == DTYPE_BF16)
        for_width<F, __nv_bfloat16>(head_width, arguments...);
    else if (type == DTYPE_F16)
        for_width<F, __half>(head_width, arguments...);
    else
        for_width<F, float>(head_width, arguments...);
}

#endif
