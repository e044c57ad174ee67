/* The tensor core's instructions, by the fragment layouts of the PTX manual ("Matrix Fragments for mma.m16n8k16" and
 * "mma.m16n8k8", "ldmatrix"). With group = lane / 4, place = lane % 4:
 *
 *   c, d (16 x 8, fp32)        element i: row group + 8 (i / 2), column 2 place + i % 2
 *   a of m16n8k16 (16 x 16)    register i, half h: row group + 8 (i % 2), column 2 place + h + 8 (i / 2)
 *   b of m16n8k16 (16 x 8)     register i, half h: row 2 place + h + 8 i, column group
 *   a of m16n8k8 (16 x 8)      register i: row group + 8 (i % 2), column place + 4 (i / 2)
 *   b of m16n8k8 (8 x 8)       register i: row place + 4 i, column group
 *
 * The order of the sums within an instruction is not documented; here it is d = c + p0 + p1 + ... with the products p
 * of ascending k, each step rounded to fp32 (products of bf16, fp16 and tf32 are exact in fp32). tf32 ignores the
 * lowest 13 bits of an fp32. */
#include "access.h"
#include "cuda_instructions.h"
#include "report.h"
#include "shared.h"

#include <cstring>

namespace simcuda {

namespace {

struct mma_payload {
    simcuda_mma kind;
    float *d;
    const uint32_t *a, *b;
    const float *c;
};

float bits_to_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

float half_of(simcuda_mma kind, uint32_t bits, int half) {
    const uint16_t x = (uint16_t)(bits >> 16 * half);
    return kind == SIMCUDA_MMA_BF16 ? bits_to_float((uint32_t)x << 16) : __half2float(__ushort_as_half(x));
}

void complete_mma(device_thread *lanes, unsigned) {
    float a[16][16], b[16][8], d[16][8];
    const simcuda_mma kind = static_cast<mma_payload *>(lanes[0].payload)->kind;
    const int depth = kind == SIMCUDA_MMA_TF32 ? 8 : 16;
    for (int lane = 0; lane < WARP_LANES; lane++) {
        const mma_payload &p = *static_cast<mma_payload *>(lanes[lane].payload);
        const int group = lane / 4, place = lane % 4;
        for (int i = 0; i < 4; i++)
            d[group + 8 * (i / 2)][2 * place + i % 2] = p.c[i];
        if (kind == SIMCUDA_MMA_TF32) {
            for (int i = 0; i < 4; i++)
                a[group + 8 * (i % 2)][place + 4 * (i / 2)] = bits_to_float(p.a[i] & 0xffffe000u);
            for (int i = 0; i < 2; i++)
                b[place + 4 * i][group] = bits_to_float(p.b[i] & 0xffffe000u);
            continue;
        }
        for (int h = 0; h < 2; h++) {
            for (int i = 0; i < 4; i++)
                a[group + 8 * (i % 2)][2 * place + h + 8 * (i / 2)] = half_of(kind, p.a[i], h);
            for (int i = 0; i < 2; i++)
                b[2 * place + h + 8 * i][group] = half_of(kind, p.b[i], h);
        }
    }
    for (int row = 0; row < 16; row++)
        for (int k = 0; k < depth; k++)
            for (int column = 0; column < 8; column++)
                d[row][column] += a[row][k] * b[k][column];
    for (int lane = 0; lane < WARP_LANES; lane++) {
        const mma_payload &p = *static_cast<mma_payload *>(lanes[lane].payload);
        for (int i = 0; i < 4; i++)
            p.d[i] = d[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2];
    }
}

struct ldmatrix_payload {
    uint32_t *r;
    const void *row;
    int matrices;
    bool transposed;
    const void *site;
};

void complete_ldmatrix(device_thread *lanes, unsigned) {
    uint16_t matrix[4][8][8];
    const int matrices = static_cast<ldmatrix_payload *>(lanes[0].payload)->matrices;
    for (int lane = 0; lane < 8 * matrices; lane++) {
        const ldmatrix_payload &p = *static_cast<ldmatrix_payload *>(lanes[lane].payload);
        if ((uintptr_t)p.row % 16 != 0 || !shared_find((uintptr_t)p.row))
            report(format("%s: ldmatrix of %p, which is not %s", who(lanes[lane]).c_str(), p.row,
                          (uintptr_t)p.row % 16 != 0 ? "aligned to 16 bytes" : "in shared memory"));
        thread_access(lanes[lane], p.row, 16, ACCESS_READ, p.site);
        memcpy(matrix[lane / 8][lane % 8], p.row, 16);
    }
    for (int lane = 0; lane < WARP_LANES; lane++) {
        const ldmatrix_payload &p = *static_cast<ldmatrix_payload *>(lanes[lane].payload);
        for (int m = 0; m < matrices; m++) {
            const int line = lane / 4, first = 2 * (lane % 4);
            const uint32_t low = p.transposed ? matrix[m][first][line] : matrix[m][line][first],
                           high = p.transposed ? matrix[m][first + 1][line] : matrix[m][line][first + 1];
            p.r[m] = low | high << 16;
        }
    }
}

} // namespace

} // namespace simcuda

using namespace simcuda;

void simcuda_mma_fragments(simcuda_mma kind, float d[4], const uint32_t *a, const uint32_t *b, const float c[4],
                           const char *file, int line) {
    mma_payload p = {kind, d, a, b, c};
    warp_meet(MEET_MMA, 0xffffffffu, &p, file, line, complete_mma);
}

void simcuda_ldmatrix(uint32_t *r, const void *shared_row, int matrices, int transposed, const char *file, int line) {
    ldmatrix_payload p = {r, shared_row, matrices, transposed != 0, __builtin_return_address(0)};
    warp_meet(MEET_LDMATRIX, 0xffffffffu, &p, file, line, complete_ldmatrix);
}
