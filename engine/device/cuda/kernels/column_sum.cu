/* column_sum: out[n] (+)= sum over the rows of x[N,n]: bias gradients. Order: partial_sums.cuh; inside a tile CHAINS
 * threads sum every CHAINS-th row, then these sums are added from first to last. */
#include "engine/device/cuda/kernels.h"

#include "partial_sums.cuh"

enum { CHAINS = BLOCK / WARP, TILE_ROWS = 64 };

/* A block sums one tile of rows for WARP packs of columns. */
template <int N, typename T>
static __global__ void sum_tiles(const T *x, float *partial, int64_t rows, int64_t width, partial_tiles tiles) {
    __shared__ float chains[CHAINS][WARP][N];
    int64_t strips = (width / N + WARP - 1) / WARP;
    for (int64_t item = blockIdx.x; item < tiles.count * strips; item += gridDim.x) {
        int64_t tile = item / strips, column = ((item - tile * strips) * WARP + threadIdx.x) * N;
        int64_t end = min((tile + 1) * tiles.rows, rows);
        float total[N] = {};
        for (int64_t row = tile * tiles.rows + threadIdx.y; row < end && column < width; row += CHAINS) {
            floats<N> values = load<N>(x + row * width + column);
            for (int j = 0; j < N; j++)
                total[j] += values.v[j];
        }
        for (int j = 0; j < N; j++)
            chains[threadIdx.y][threadIdx.x][j] = total[j];
        __syncthreads();
        if (threadIdx.y == 0 && column < width) {
            floats<N> sums;
            for (int j = 0; j < N; j++) {
                sums.v[j] = chains[0][threadIdx.x][j];
                for (int y = 1; y < CHAINS; y++)
                    sums.v[j] += chains[y][threadIdx.x][j];
            }
            store(partial + tile * width + column, sums);
        }
        __syncthreads(); /* before chains is overwritten */
    }
}

static size_t workspace(const launch *l) {
    return (size_t)(partial_tiles_of(l->in[0].shape[0], TILE_ROWS).count * l->in[0].shape[1]) * sizeof(float);
}

static void queue(const launch *l, cudaStream_t stream) {
    const operand *x = &l->in[0], *out = &l->out[0];
    int64_t rows = x->shape[0], width = x->shape[1];
    partial_tiles tiles = partial_tiles_of(rows, TILE_ROWS);
    float *partial = static_cast<float *>(l->workspace);
    if (width == 0)
        return;
    with_access(x->type, rows_aligned(x, width), [&](auto access) {
        typedef typename decltype(access)::type T;
        constexpr int N = decltype(access)::count;
        if (rows > 0)
            LAUNCH((sum_tiles<N, T>), grid_of(tiles.count * divide_up(width / N, WARP)), dim3(WARP, CHAINS), 0, stream,
                   data<const T>(x), partial, rows, width, tiles);
        queue_partial_sums<T>(partial, tiles.count, width, launch_adds(l, 0), out, stream);
    });
}

extern "C" const cuda_kernel cuda_column_sum = {workspace, queue};
