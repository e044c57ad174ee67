/* What the memory-bound CUDA kernels move, counted by tests/simcuda at shapes whose rows start at 128 bits: at most 1.1
 * times the bytes that operation_bytes names, nearly all of them in 128-bit accesses that lie side by side in a warp.
 * Prints a line per kernel and storage. */
#include "cuda/simulated/launches.h"
#include "engine/device/update.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <string.h>

/* Limits, in least bytes: operation_bytes. */
static const double most_moved = 1.1;   /* distinct bytes of each kernel, what a perfect cache would fetch and write */
static const double most_sectors = 1.1; /* 32 bytes for each sector that a warp's access touches: without a cache */
static const double least_wide = 0.9;   /* bytes in aligned accesses of 128 bits */

enum { ROWS = 4096, WIDTH = 256 };

static operand tensor(dtype type, int64_t rows, int64_t columns) {
    operand o = operand_make(type, rows, columns);
    for (int64_t i = 0; i < operand_count(&o); i++)
        operand_set(&o, i, (double)(i % 7) * 0.125);
    return o;
}

static operand ascending(int64_t count, int64_t divisor) {
    operand o = operand_make(DTYPE_I32, count, 1);
    for (int64_t i = 0; i < count; i++)
        operand_set(&o, i, (double)(i / divisor));
    return o;
}

static operand doubles(int64_t count) {
    return tensor(DTYPE_F64, count, 1);
}

static void check_traffic(launch *l) {
    const char *name = operation_signature_of(l->kind)->name;
    simcuda_counters c;
    launch result = cuda_launch_count(l, (cuda_placement){0}, &c);
    double least = operation_bytes(l), moved = (double)(c.distinct_read_bytes + c.distinct_written_bytes) / least;
    double sectors = (double)c.sector_bytes / least, wide = (double)c.wide_bytes / least;
    print_message("%-18s %s to %s: of the least bytes moved %.3f, sectors %.3f, in 128-bit accesses %.3f\n", name,
                  dtype_name(l->in[l->in[0].type == DTYPE_I32].type), dtype_name(l->out[0].type), moved, sectors, wide);
    if (moved > most_moved || sectors > most_sectors || wide < least_wide)
        fail_msg("%s moves more than it should", name);
    launch_release(&result);
    launch_release(l);
}

static const dtype storages[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
enum { STORAGES = 3 };

/* Storage of gradients of parameters beside activations of storages[s]: the same, or fp32. */
static dtype gradients_of(int s, int whole) {
    return whole ? DTYPE_F32 : storages[s];
}

static void embedding(void **state) {
    (void)state;
    for (int s = 0; s < STORAGES; s++)
        for (int positions = 0; positions < 2; positions++) {
            launch l = {.kind = OPERATION_EMBEDDING, .attributes = {.sequence = 256}};
            l.in[0] = ascending(ROWS, 1);
            l.in[1] = tensor(storages[s], ROWS, WIDTH);
            if (positions)
                l.in[2] = tensor(storages[s], 256, WIDTH);
            l.out[0] = tensor(storages[s], ROWS, WIDTH);
            check_traffic(&l);
        }
}

/* Overwriting a table of which half the rows are met, and adding to it; each token twice. */
static void embedding_backward(void **state) {
    (void)state;
    for (int s = 0; s < STORAGES; s++)
        for (int way = 0; way < 4; way++) {
            const int adds = way & 1;
            launch l = {.kind = OPERATION_EMBEDDING_BACKWARD, .accumulate = (uint32_t)adds};
            l.in[0] = tensor(storages[s], ROWS / 2, 2 * WIDTH);
            l.in[1] = ascending(ROWS / 2, adds ? 1 : 2);
            l.in[2] = ascending(ROWS / 2, 1);
            l.out[0] = tensor(gradients_of(s, way / 2), ROWS, 2 * WIDTH);
            check_traffic(&l);
        }
}

static void position_backward(void **state) {
    (void)state;
    for (int s = 0; s < STORAGES; s++)
        for (int way = 0; way < 4; way++) {
            launch l = {.kind = OPERATION_POSITION_BACKWARD, .attributes = {.sequence = 256}, .accumulate = way & 1};
            l.in[0] = tensor(storages[s], ROWS / 8, WIDTH);
            l.out[0] = tensor(gradients_of(s, way / 2), 256, WIDTH);
            check_traffic(&l);
        }
}

static void norm(void **state) {
    (void)state;
    for (int s = 0; s < STORAGES; s++)
        for (int residual = 0; residual < 2; residual++) {
            launch l = {.kind = OPERATION_NORM, .attributes = {.norm = NORM_LAYER, .epsilon = 1e-5}};
            l.in[0] = tensor(storages[s], 2 * ROWS, WIDTH);
            l.in[2] = tensor(storages[s], WIDTH, 1), l.in[3] = tensor(storages[s], WIDTH, 1);
            l.out[0] = tensor(storages[s], 2 * ROWS, WIDTH);
            if (residual) {
                l.in[1] = tensor(storages[s], 2 * ROWS, WIDTH);
                l.out[1] = tensor(storages[s], 2 * ROWS, WIDTH);
            }
            l.out[2] = tensor(DTYPE_F32, 2 * ROWS, 2);
            check_traffic(&l);
        }
}

static void norm_backward(void **state) {
    (void)state;
    for (int s = 0; s < STORAGES; s++) {
        launch l = {.kind = OPERATION_NORM_BACKWARD, .attributes = {.norm = NORM_LAYER}};
        l.in[0] = tensor(storages[s], ROWS / 2, 2 * WIDTH), l.in[1] = tensor(storages[s], ROWS / 2, 2 * WIDTH);
        l.in[2] = tensor(storages[s], ROWS / 2, 2 * WIDTH), l.in[3] = tensor(DTYPE_F32, ROWS / 2, 2);
        l.in[4] = tensor(storages[s], 2 * WIDTH, 1);
        l.out[0] = tensor(storages[s], ROWS / 2, 2 * WIDTH);
        l.out[1] = tensor(DTYPE_F32, 2 * WIDTH, 1), l.out[2] = tensor(DTYPE_F32, 2 * WIDTH, 1);
        check_traffic(&l);
    }
}

static void column_sum(void **state) {
    (void)state;
    for (int s = 0; s < STORAGES; s++) {
        launch l = {.kind = OPERATION_COLUMN_SUM};
        l.in[0] = tensor(storages[s], ROWS, WIDTH);
        l.out[0] = tensor(DTYPE_F32, WIDTH, 1);
        check_traffic(&l);
    }
}

static void rope(void **state) {
    (void)state;
    for (int s = 0; s < STORAGES; s++) {
        attributes a = {.sequence = 128, .heads = 6, .kv_heads = 2, .head_width = 64};
        launch l = {.kind = OPERATION_ROPE, .attributes = a};
        l.in[0] = tensor(storages[s], 1024, 10 * 64);
        l.in[1] = tensor(DTYPE_F32, 128, 32), l.in[2] = tensor(DTYPE_F32, 128, 32);
        l.out[0] = tensor(storages[s], 1024, 10 * 64);
        check_traffic(&l);
    }
}

static void activations(void **state) {
    (void)state;
    for (int s = 0; s < STORAGES; s++) {
        launch gelu = {.kind = OPERATION_GELU};
        gelu.in[0] = tensor(storages[s], 128, WIDTH), gelu.out[0] = tensor(storages[s], 128, WIDTH);
        check_traffic(&gelu);
        launch gelu_backward = {.kind = OPERATION_GELU_BACKWARD};
        gelu_backward.in[0] = tensor(storages[s], 128, WIDTH), gelu_backward.in[1] = tensor(storages[s], 128, WIDTH);
        gelu_backward.out[0] = tensor(storages[s], 128, WIDTH);
        check_traffic(&gelu_backward);
        launch swiglu = {.kind = OPERATION_SWIGLU};
        swiglu.in[0] = tensor(storages[s], 128, 2 * WIDTH), swiglu.out[0] = tensor(storages[s], 128, WIDTH);
        check_traffic(&swiglu);
        launch swiglu_backward = {.kind = OPERATION_SWIGLU_BACKWARD};
        swiglu_backward.in[0] = tensor(storages[s], 128, WIDTH);
        swiglu_backward.in[1] = tensor(storages[s], 128, 2 * WIDTH);
        swiglu_backward.out[0] = tensor(storages[s], 128, 2 * WIDTH);
        check_traffic(&swiglu_backward);
    }
}

/* A vocabulary whose rows start anywhere, and one whose rows are wider than shared memory in fp32 only. */
static void cross_entropy(void **state) {
    (void)state;
    const int64_t vocabularies[] = {4096, 8191, 26000};
    for (int s = 0; s < STORAGES; s++)
        for (int v = 0; v < 3; v++) {
            launch l = {.kind = OPERATION_CROSS_ENTROPY};
            l.in[0] = tensor(storages[s], 4, vocabularies[v]);
            l.in[1] = ascending(4, 1), l.in[2] = doubles(SCALAR_COUNT);
            l.out[0] = tensor(DTYPE_F32, 4, 1);
            l.out[1] = tensor(storages[s], 4, vocabularies[v]);
            check_traffic(&l);
        }
}

static void elementwise(void **state) {
    (void)state;
    for (int s = 0; s < STORAGES; s++) {
        launch add = {.kind = OPERATION_ADD};
        add.in[0] = tensor(storages[s], 128, WIDTH), add.in[1] = tensor(storages[s], 128, WIDTH);
        add.out[0] = tensor(storages[s], 128, WIDTH);
        check_traffic(&add);
        launch fill = {.kind = OPERATION_FILL, .out = {tensor(storages[s], 128, WIDTH)}};
        check_traffic(&fill);
        for (int to = 0; to < STORAGES; to++) {
            launch cast = {.kind = OPERATION_CAST, .in = {tensor(storages[s], 128, WIDTH)}};
            cast.out[0] = tensor(storages[to], 128, WIDTH);
            check_traffic(&cast);
        }
    }
}

/* Sums over a shard and the update; segments that begin inside vectors. */
static void shards(void **state) {
    (void)state;
    static const segment segments[] = {{0, 20000, true}, {20032, 111041, false}};
    enum { COUNT = 131072, GRANULE = 65536 };
    attributes a = {
        .segments = segments, .segment_count = 2, .granule = GRANULE, .beta_first = 0.9, .beta_second = 0.95};
    launch sum = {.kind = OPERATION_SUM, .in = {tensor(DTYPE_F32, COUNT, 1)}, .out = {doubles(1)}};
    check_traffic(&sum);
    launch norm = {.kind = OPERATION_GRANULE_NORM, .attributes = a, .in = {tensor(DTYPE_F32, COUNT, 1)}};
    norm.out[0] = doubles(COUNT / GRANULE);
    check_traffic(&norm);
    launch update = {.kind = OPERATION_ADAMW, .attributes = a, .accumulate = 7};
    update.in[0] = tensor(DTYPE_F32, COUNT, 1), update.in[1] = doubles(SCALAR_COUNT);
    update.in[2] = doubles(RESULT_COUNT), update.in[3] = doubles(1);
    operand_set(&update.in[2], RESULT_BAD, 0);
    for (int o = 0; o < OPERATION_OUTPUTS; o++)
        update.out[o] = tensor(DTYPE_F32, COUNT, 1);
    check_traffic(&update);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embedding),
        cmocka_unit_test(embedding_backward),
        cmocka_unit_test(position_backward),
        cmocka_unit_test(norm),
        cmocka_unit_test(norm_backward),
        cmocka_unit_test(column_sum),
        cmocka_unit_test(rope),
        cmocka_unit_test(activations),
        cmocka_unit_test(cross_entropy),
        cmocka_unit_test(elementwise),
        cmocka_unit_test(shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
