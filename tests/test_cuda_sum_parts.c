/* Sums of parts on the GPU (engine/device/part_sum.h), executed by tests/simcuda: the bits of the order that is
 * promised, for every storage, number of members and alignment; and what they move, as in test_cuda_traffic.c. */
#include "engine/device/cuda/kernels.h"
#include "engine/error.h"
#include "simcuda.h"
#include "support/launches.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

static const struct {
    dtype parts, out;
} storages[] = {
    {DTYPE_F32, DTYPE_F32},  {DTYPE_BF16, DTYPE_BF16}, {DTYPE_F16, DTYPE_F16},
    {DTYPE_BF16, DTYPE_F32}, {DTYPE_F16, DTYPE_F32},
};
enum { STORAGES = sizeof storages / sizeof *storages };

static void must(cudaError_t code) {
    check(code == cudaSuccess, "simulated device: %s", cudaGetErrorString(code));
}

/* Members' parts of `room` elements each, and what the sum is added to. */
typedef struct sum_case {
    operand parts, out;
    int members, odd;
    int64_t count, room;
    bool adds;
} sum_case;

static sum_case make_case(int storage, int members, int odd, int64_t count, bool adds) {
    sum_case c = {.members = members, .odd = odd, .count = count, .room = (count + 7) / 8 * 8, .adds = adds};
    c.parts = operand_random(storages[storage].parts, members, c.room, 1, 1);
    c.out = operand_random(storages[storage].out, count, 1, 1, 2);
    return c;
}

static void release_case(sum_case *c) {
    operand_release(&c->parts);
    operand_release(&c->out);
}

/* ---- as promised ---- */

static float part(const sum_case *c, int member, int64_t i) {
    return (float)operand_get(&c->parts, member * c->room + i);
}

static float sum_of_runs(const sum_case *c, int first, int runs, int64_t i) {
    if (runs > 1)
        return sum_of_runs(c, first, runs / 2, i) + sum_of_runs(c, first + runs / 2 * c->odd, runs / 2, i);
    float sum = part(c, first, i);
    for (int k = 1; k < c->odd; k++)
        sum += part(c, first + k, i);
    return sum;
}

static operand expected(const sum_case *c) {
    operand sums = operand_make(c->out.type, c->count, 1);
    for (int64_t i = 0; i < c->count; i++) {
        const float sum = sum_of_runs(c, 0, c->members / c->odd, i);
        operand_set(&sums, i, (double)(c->adds ? (float)operand_get(&c->out, i) + sum : sum));
    }
    return sums;
}

/* ---- on the device ---- */

static size_t bytes_of(const operand *o) {
    return (size_t)(operand_count(o) * dtype_bytes(o->type));
}

/* The result begins `shift` elements behind a boundary of 16 bytes. */
static operand run(const sum_case *c, int64_t shift, simcuda_counters *counters) {
    char *parts, *out;
    operand sums = operand_make(c->out.type, c->count, 1);
    must(cudaMalloc((void **)&parts, bytes_of(&c->parts)));
    must(cudaMalloc((void **)&out, bytes_of(&c->out) + (size_t)(shift * dtype_bytes(c->out.type))));
    char *result = out + shift * dtype_bytes(c->out.type);
    must(cudaMemcpy(parts, c->parts.data, bytes_of(&c->parts), cudaMemcpyHostToDevice));
    if (c->adds)
        must(cudaMemcpy(result, c->out.data, bytes_of(&c->out), cudaMemcpyHostToDevice));
    const part_sum sum = {.parts = parts,
                          .part_bytes = c->room * dtype_bytes(c->parts.type),
                          .part_type = c->parts.type,
                          .members = c->members,
                          .odd = c->odd,
                          .out = result,
                          .out_type = c->out.type,
                          .count = c->count,
                          .adds = c->adds};
    simcuda_counters_start();
    cuda_sum_parts(&sum, NULL);
    must(cudaGetLastError());
    *counters = simcuda_counters_stop();
    must(cudaMemcpy(sums.data, result, bytes_of(&sums), cudaMemcpyDeviceToHost));
    must(cudaFree(parts));
    must(cudaFree(out));
    return sums;
}

/* ---- tests ---- */

static void check_bits(sum_case c, int64_t shift) {
    simcuda_counters counters;
    operand want = expected(&c), found = run(&c, shift, &counters);
    if (memcmp(want.data, found.data, bytes_of(&want)) != 0)
        fail_msg("%d members of %s in runs of %d, %lld elements, to %s%s: not the bits of the promised order",
                 c.members, dtype_name(c.parts.type), c.odd, (long long)c.count, dtype_name(c.out.type),
                 c.adds ? ", adding" : "");
    operand_release(&want);
    operand_release(&found);
    release_case(&c);
}

static void bits(void **state) {
    (void)state;
    static const int members[][2] = {{1, 1}, {2, 1}, {3, 3}, {4, 1}, {6, 3}, {8, 1}, {12, 3}, {16, 1}, {40, 5}};
    static const int64_t counts[] = {1, 7, 8, 129, 255, 256, 257, 1000};
    uint64_t seed = 0;
    for (int s = 0; s < STORAGES; s++)
        for (size_t m = 0; m < sizeof members / sizeof *members; m++)
            for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
                simcuda_seed(seed++);
                check_bits(make_case(s, members[m][0], members[m][1], counts[n], (m + n) % 2 == 0), n % 3 == 2);
            }
}

/* Runs beyond the first few: a sum of many ranks. */
static void many_members(void **state) {
    (void)state;
    check_bits(make_case(0, 1024, 1, 5, false), 0);
    check_bits(make_case(3, 768, 3, 300, true), 0);
}

/* At most 1.1 times the least bytes, nearly all of them in 128-bit accesses that lie side by side in a warp. */
static void traffic(void **state) {
    (void)state;
    enum { COUNT = 16384 };
    for (int s = 0; s < STORAGES; s++)
        for (int members = 1; members <= 4; members *= 2) {
            sum_case c = make_case(s, members, 1, COUNT, members == 2);
            simcuda_counters counters;
            operand found = run(&c, 0, &counters);
            const double least =
                (double)COUNT * (double)(members * dtype_bytes(c.parts.type) + (1 + c.adds) * dtype_bytes(c.out.type));
            const double moved = (double)(counters.distinct_read_bytes + counters.distinct_written_bytes) / least;
            const double sectors = (double)counters.sector_bytes / least, wide = (double)counters.wide_bytes / least;
            print_message("%d of %s to %s: of the least bytes moved %.3f, sectors %.3f, in 128-bit accesses %.3f\n",
                          members, dtype_name(c.parts.type), dtype_name(c.out.type), moved, sectors, wide);
            if (moved > 1.1 || sectors > 1.1 || wide < 0.9)
                fail_msg("a sum of parts moves more than it should");
            operand_release(&found);
            release_case(&c);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits),
        cmocka_unit_test(many_members),
        cmocka_unit_test(traffic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
