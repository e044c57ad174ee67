/* Sums over the rows of a tall matrix, in two steps whose order depends on the shape alone: each tile of rows leaves
 * one fp32 row of partial sums in the workspace, then the partial sums of each column are added in fp64. */
#ifndef FSDP_ENGINE_DEVICE_CUDA_KERNELS_PARTIAL_SUMS_CUH
#define FSDP_ENGINE_DEVICE_CUDA_KERNELS_PARTIAL_SUMS_CUH

#include "grid.cuh"
#include "storage.cuh"

/* How rows are cut into tiles. */
typedef struct partial_tiles {
    int64_t rows; /* of a tile */
    int64_t count;
} partial_tiles;

/* At most so many tiles, of at least `least` rows, which makes writing and reading partial sums little beside reading
 * the rows. */
enum { PARTIAL_TILES = 512 };

static inline partial_tiles partial_tiles_of(int64_t rows, int64_t least) {
    partial_tiles tiles;
    tiles.rows = maximum(least, divide_up(rows, PARTIAL_TILES));
    tiles.count = divide_up(rows, tiles.rows);
    return tiles;
}

/* Threads of the second step: x columns, y chains of every y-th tile, at most PARTIAL_CHAINS. */
enum { PARTIAL_COLUMNS = 32, PARTIAL_CHAINS = 16 };

static inline dim3 partial_block(int64_t tiles) {
    return dim3(PARTIAL_COLUMNS, (unsigned)maximum(1, minimum(tiles, PARTIAL_CHAINS)));
}

/* The sum over a column's chains, first to last; of threads with threadIdx.y 0. Meets all threads of the block. */
static __device__ __forceinline__ double chain_sum(double chain, double (&chains)[PARTIAL_CHAINS][PARTIAL_COLUMNS]) {
    chains[threadIdx.y][threadIdx.x] = chain;
    __syncthreads();
    double total = 0;
    for (int y = 0; y < (int)blockDim.y && threadIdx.y == 0; y++)
        total += chains[y][threadIdx.x];
    __syncthreads(); /* before the next use of chains */
    return total;
}

/* out[c] (+)= sum over tiles of partial[tile * width + c]. */
template <typename G>
static __global__ void add_partial_sums(const float *partial, int64_t tiles, int64_t width, bool adds, G *out) {
    __shared__ double chains[PARTIAL_CHAINS][PARTIAL_COLUMNS];
    for (int64_t first = (int64_t)blockIdx.x * PARTIAL_COLUMNS; first < width;
         first += (int64_t)gridDim.x * PARTIAL_COLUMNS) {
        int64_t column = first + threadIdx.x;
        double total = 0;
        for (int64_t tile = threadIdx.y; tile < tiles && column < width; tile += blockDim.y)
            total += (double)partial[tile * width + column];
        total = chain_sum(total, chains);
        if (threadIdx.y == 0 && column < width)
            narrow((float)(adds ? (double)widen(out[column]) + total : total), &out[column]);
    }
}

template <typename T>
static void queue_partial_sums(const float *partial, int64_t tiles, int64_t width, bool adds, const operand *out,
                               cudaStream_t stream) {
    with_gradient_storage<T>(out->type, [&](auto stored) {
        typedef decltype(stored) G;
        LAUNCH((add_partial_sums<G>), grid_of(divide_up(width, PARTIAL_COLUMNS)), partial_block(tiles), 0, stream,
               partial, tiles, width, adds, data<G>(out));
    });
}

#endif
