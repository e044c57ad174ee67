/* embedding_backward: dtable[V,C] (+)= for each token the sum of its rows of dout[N,C]; overwriting fills the rows of
 * absent tokens with zero. order[N] holds the rows sorted by (tokens[N], row): equal tokens are a run of positions.
 *
 * 1. Positions are cut into pieces of PIECE. A block walks through one piece: a run that lies inside it is written to
 *    dtable; what the piece holds of a run that began before goes to the workspace as partial sum HEAD, of one that
 *    begins here and goes on, as TAIL. So a frequent token is shared out among as many blocks as it has pieces.
 * 2. A run over several pieces is the TAIL of its first and the HEADs of the others, added in fp64 in the order of
 *    add_partial_sums.
 * 3. Where the operation overwrites, step 1 marks the tokens that it met, and the rows of all others are cleared. */
#include "engine/device/cuda/kernels.h"

#include "paired.cuh"
#include "partial_sums.cuh"

enum { PIECE = 32, HEAD = 0, TAIL = 1, ROWS_AHEAD = 4 };

typedef struct sorted_tokens {
    const int32_t *tokens, *order;
    int64_t rows, pieces;
} sorted_tokens;

/* The token at a sorted position; -1 outside. */
static __device__ int32_t token_at(const sorted_tokens &s, int64_t position) {
    return position >= 0 && position < s.rows ? s.tokens[s.order[position]] : -1;
}

/* partial[piece][HEAD or TAIL][C] */
static __device__ float *partial_row(float *partial, int64_t piece, int which, int64_t width) {
    return partial + (2 * piece + which) * width;
}

static __global__ void clear_marks(uint8_t *met, int64_t vocabulary) {
    for (int64_t v = first_item(); v < vocabulary; v += item_stride())
        met[v] = 0;
}

/* One piece's rows, for its thread's columns c .. c+N-1. tokens[i + 1] is the token at the piece's position i. */
template <int N, typename T, typename G>
static __device__ void sum_columns(const T *dout, const int32_t *tokens, const int32_t *rows, int count, int64_t c,
                                   int64_t width, bool adds, float *head, float *tail, G *dtable) {
    const bool whole = whole_warp(c / N, width / N);
    floats<N> total = {};
    int begin = 0; /* of the run */
    for (int first = 0; first < count; first += ROWS_AHEAD) {
        floats<N> ahead[ROWS_AHEAD];
        for (int i = 0; i < ROWS_AHEAD; i++)
            if (first + i < count)
                ahead[i] = load<N>(dout + rows[first + i] * width + c);
        for (int i = 0; i < ROWS_AHEAD; i++) {
            int at = first + i;
            if (at >= count)
                break;
            int32_t token = tokens[at + 1];
            for (int j = 0; j < N; j++)
                total.v[j] += ahead[i].v[j];
            bool ends = tokens[at + 2] != token;
            if (!ends && at + 1 < count)
                continue;
            if (begin == 0 && tokens[0] == token)
                store_paired(whole, head + c, total);
            else if (!ends)
                store_paired(whole, tail + c, total);
            else {
                G *to = dtable + token * width + c;
                floats<N> before = {};
                if (adds)
                    before = load_paired<N>(whole, to);
                for (int j = 0; j < N; j++)
                    before.v[j] += total.v[j];
                store_paired(whole, to, before);
            }
            total = {};
            begin = at + 1;
        }
    }
}

template <int N, typename T, typename G>
static __global__ void sum_pieces(const T *dout, sorted_tokens s, int64_t width, bool adds, float *partial,
                                  uint8_t *met, G *dtable) {
    __shared__ int32_t tokens[PIECE + 2], rows[PIECE];
    for (int64_t piece = blockIdx.x; piece < s.pieces; piece += gridDim.x) {
        int64_t begin = piece * PIECE;
        int count = (int)min(s.rows - begin, (int64_t)PIECE);
        for (int i = threadIdx.x; i < count + 2; i += blockDim.x)
            tokens[i] = token_at(s, begin + i - 1);
        for (int i = threadIdx.x; i < count; i += blockDim.x)
            rows[i] = s.order[begin + i];
        __syncthreads();
        for (int i = threadIdx.x; met != NULL && i < count; i += blockDim.x)
            if (tokens[i + 1] != tokens[i])
                met[tokens[i + 1]] = 1;
        for (int64_t c = threadIdx.x * N; c < width; c += blockDim.x * N)
            sum_columns<N>(dout, tokens, rows, count, c, width, adds, partial_row(partial, piece, HEAD, width),
                           partial_row(partial, piece, TAIL, width), dtable);
        __syncthreads(); /* before tokens and rows are overwritten */
    }
}

/* The last piece that holds the token of piece's last position, where that run begins in this piece and goes on; else
 * the piece itself. */
static __device__ int64_t last_piece_of_tail(const sorted_tokens &s, int64_t piece) {
    int64_t begin = piece * PIECE, end = min(begin + PIECE, s.rows);
    int32_t token = token_at(s, end - 1);
    if (token_at(s, begin - 1) == token || token_at(s, end) != token)
        return piece;
    int64_t low = piece + 1, high = s.pieces; /* pieces below low begin with the token, from high on they do not */
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (token_at(s, middle * PIECE) == token)
            low = middle + 1;
        else
            high = middle;
    }
    return low - 1;
}

/* Step 2, for PARTIAL_COLUMNS columns of the run that begins in a piece and goes on, if there is one. */
template <typename G>
static __global__ void join_pieces(sorted_tokens s, float *partial, int64_t width, bool adds, G *dtable) {
    __shared__ double chains[PARTIAL_CHAINS][PARTIAL_COLUMNS];
    __shared__ int64_t last;
    int64_t strips = (width + PARTIAL_COLUMNS - 1) / PARTIAL_COLUMNS;
    for (int64_t item = blockIdx.x; item < s.pieces * strips; item += gridDim.x) {
        int64_t piece = item / strips, column = (item - piece * strips) * PARTIAL_COLUMNS + threadIdx.x;
        if (threadIdx.x == 0 && threadIdx.y == 0)
            last = last_piece_of_tail(s, piece);
        __syncthreads();
        if (last > piece) {
            double total = 0;
            for (int64_t p = piece + threadIdx.y; p <= last && column < width; p += blockDim.y)
                total += (double)partial_row(partial, p, p == piece ? TAIL : HEAD, width)[column];
            total = chain_sum(total, chains);
            if (threadIdx.y == 0 && column < width) {
                G *to = dtable + token_at(s, last * PIECE) * width + column;
                narrow((float)(adds ? (double)widen(*to) + total : total), to);
            }
        }
        __syncthreads(); /* before last is overwritten */
    }
}

/* Step 3: a warp for each row of the table. */
template <int N, typename G>
static __global__ void clear_absent(const uint8_t *met, int64_t vocabulary, int64_t width, G *dtable) {
    floats<N> zero = {};
    for (int64_t v = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; v < vocabulary;
         v += (int64_t)gridDim.x * blockDim.y) {
        int there = threadIdx.x == 0 ? met[v] : 0;
        if (__shfl_sync(0xffffffffu, there, 0) == 0)
            for (int64_t c = threadIdx.x * N; c < width; c += WARP * N)
                store(dtable + v * width + c, zero);
    }
}

static sorted_tokens sorted_tokens_of(const launch *l) {
    sorted_tokens s = {data<const int32_t>(&l->in[1]), data<const int32_t>(&l->in[2]), l->in[0].shape[0], 0};
    s.pieces = divide_up(s.rows, PIECE);
    return s;
}

static size_t workspace(const launch *l) {
    int64_t vocabulary = l->out[0].shape[0], width = l->out[0].shape[1];
    return (size_t)(2 * sorted_tokens_of(l).pieces * width) * sizeof(float) + (size_t)vocabulary;
}

template <int N, typename T, typename G> static void queue_as(const launch *l, cudaStream_t stream) {
    sorted_tokens s = sorted_tokens_of(l);
    int64_t vocabulary = l->out[0].shape[0], width = l->out[0].shape[1];
    bool adds = launch_adds(l, 0);
    float *partial = static_cast<float *>(l->workspace);
    uint8_t *met = adds ? NULL : reinterpret_cast<uint8_t *>(partial + 2 * s.pieces * width);
    G *dtable = data<G>(&l->out[0]);
    if (!adds)
        LAUNCH(clear_marks, grid_of_items(vocabulary), BLOCK, 0, stream, met, vocabulary);
    if (s.rows > 0) {
        unsigned threads = (unsigned)minimum(BLOCK, round_up(width / N, WARP));
        LAUNCH((sum_pieces<N, T, G>), grid_of(s.pieces), threads, 0, stream, data<const T>(&l->in[0]), s, width, adds,
               partial, met, dtable);
        LAUNCH((join_pieces<G>), grid_of(s.pieces * divide_up(width, PARTIAL_COLUMNS)), partial_block(s.pieces), 0,
               stream, s, partial, width, adds, dtable);
    }
    constexpr int M = N == 1 ? 1 : per_vector<G>::count;
    if (!adds)
        LAUNCH((clear_absent<M, G>), grid_of(divide_up(vocabulary, BLOCK / WARP)), dim3(WARP, BLOCK / WARP), 0, stream,
               met, vocabulary, width, dtable);
}

static void queue(const launch *l, cudaStream_t stream) {
    const operand *dout = &l->in[0], *dtable = &l->out[0];
    int64_t vocabulary = dtable->shape[0], width = dtable->shape[1];
    if (vocabulary == 0 || width == 0)
        return;
    with_access(dout->type, rows_aligned(dout, width) && rows_aligned(dtable, width), [&](auto access) {
        typedef typename decltype(access)::type T;
        constexpr int N = decltype(access)::count;
        with_gradient_storage<T>(dtable->type, [&](auto stored) { queue_as<N, T, decltype(stored)>(l, stream); });
    });
}

extern "C" const cuda_kernel cuda_embedding_backward = {workspace, queue};
