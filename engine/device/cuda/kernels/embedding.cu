/* embedding: out[N,C] = table[tokens[i]] + positions[i mod T], the latter where there are any. A row of positions is
 * read once for SEQUENCES sequences. */
#include "engine/device/cuda/kernels.h"

#include "grid.cuh"
#include "storage.cuh"

enum { SEQUENCES = 16 };

/* An item is one pack of one position in a group of sequences: item = (group * sequence + position) * packs + pack.
 * Without positions all rows are one sequence. */
template <int N, typename T>
static __global__ void embedding(const int32_t *tokens, const T *table, const T *positions, T *out, int64_t rows,
                                 int64_t width, int64_t sequence, int64_t groups) {
    int64_t packs = width / N;
    for (int64_t item = first_item(); item < groups * sequence * packs; item += item_stride()) {
        int64_t slot = item / packs, column = (item - slot * packs) * N;
        int64_t group = slot / sequence, position = slot - group * sequence;
        floats<N> add = load_if<N>(positions != NULL, positions, position * width + column);
        for (int i = 0; i < SEQUENCES; i++) {
            int64_t row = (group * SEQUENCES + i) * sequence + position;
            if (row >= rows)
                break;
            floats<N> sum = load<N>(table + tokens[row] * width + column);
            for (int j = 0; j < N; j++)
                sum.v[j] += add.v[j];
            store(out + row * width + column, sum);
        }
    }
}

static void queue(const launch *l, cudaStream_t stream) {
    const operand *tokens = &l->in[0], *table = &l->in[1], *positions = &l->in[2], *out = &l->out[0];
    int64_t rows = out->shape[0], width = out->shape[1];
    int64_t sequence = positions->data != NULL ? l->attributes.sequence : rows;
    if (rows == 0 || width == 0)
        return;
    int64_t groups = divide_up(rows, sequence * SEQUENCES);
    bool vectors = rows_aligned(table, width) && rows_aligned(positions, width) && rows_aligned(out, width);
    with_access(out->type, vectors, [&](auto access) {
        typedef typename decltype(access)::type T;
        constexpr int N = decltype(access)::count;
        LAUNCH((embedding<N, T>), grid_of_items(groups * sequence * (width / N)), BLOCK, 0, stream,
               data<const int32_t>(tokens), data<const T>(table), data<const T>(positions), data<T>(out), rows, width,
               sequence, groups);
    });
}

extern "C" const cuda_kernel cuda_embedding = {NULL, queue};
