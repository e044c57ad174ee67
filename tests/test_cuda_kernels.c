/* Every CUDA kernel but matmul and attention, executed by tests/simcuda or a GPU (cuda/launches.h), against the
 * reference kernel in fp64 on the same values: all storage types, sizes around vectors, warps, blocks and tiles, adding
 * and overwriting, with and without optional operands, with outputs in the bytes of inputs, with data off the 128-bit
 * boundaries, under changing seeds (another order of blocks and threads), which must give the same bits. */
#include "cuda/launches.h"
#include "engine/checked.h"
#include "engine/device/half.h"
#include "engine/device/reference/reference.h"
#include "engine/device/update.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t sizes[] = {1, 2, 7, 8, 16, 17, 31, 63, 64, 65, 127, 129, 256, 257, 515};
enum { SIZE_COUNT = sizeof sizes / sizeof *sizes };

/* Storage of activations and of gradients of parameters. */
static const struct {
    dtype activations, gradients;
} storages[] = {
    {DTYPE_F32, DTYPE_F32},  {DTYPE_BF16, DTYPE_BF16}, {DTYPE_F16, DTYPE_F16},
    {DTYPE_BF16, DTYPE_F32}, {DTYPE_F16, DTYPE_F32},
};
enum { STORAGES = 3, STORAGES_WITH_GRADIENTS = 5 };

/* What every test gets: how many launches were checked, from which seed and placement follow. */
typedef struct progress {
    unsigned launches;
} progress;

static cuda_placement placement_of(unsigned number, const launch *l) {
    cuda_placement placement = {.share = (number & 1) != 0 && launch_can_share(l), .shift = number / 2 % 3 == 1};
    return placement;
}

static void same_bits(const launch *a, const launch *b, const char *where) {
    for (int o = 0; o < OPERATION_OUTPUTS; o++)
        if (a->out[o].data != NULL) {
            size_t bytes = (size_t)(operand_count(&a->out[o]) * dtype_bytes(a->out[o].type));
            if (memcmp(a->out[o].data, b->out[o].data, bytes) != 0)
                fail_msg("%s, %s: bits depend on the order of execution", where,
                         operation_signature_of(a->kind)->outputs[o]);
        }
}

/* The value that storing as `type` leaves. */
static double stored(double value, dtype type) {
    operand o = operand_make(type, 1, 1);
    operand_set(&o, 0, value);
    value = operand_get(&o, 0);
    operand_release(&o);
    return value;
}

/* norm normalises the sum as it is stored, so that its reference gets that sum, and a residual of zero. */
static launch reference_of(const launch *typed) {
    if (typed->kind != OPERATION_NORM || typed->in[1].data == NULL)
        return cuda_launch_reference(typed);
    launch exact = cuda_launch_typed(typed, DTYPE_F64, DTYPE_F64);
    for (int64_t i = 0; i < operand_count(&exact.in[0]); i++) {
        float sum = (float)operand_get(&exact.in[0], i) + (float)operand_get(&exact.in[1], i);
        operand_set(&exact.in[0], i, stored((double)sum, typed->in[0].type));
        operand_set(&exact.in[1], i, 0);
    }
    launch want = cuda_launch_reference(&exact);
    launch_release(&exact);
    return want;
}

static void check_typed(progress *p, const launch *typed, accuracy near) {
    const operation_signature *s = operation_signature_of(typed->kind);
    cuda_placement placement = placement_of(p->launches, typed);
    char where[200];
    snprintf(where, sizeof where, "%s, in[0] %s %lld x %lld, out[0] %s %lld x %lld%s%s%s", s->name,
             dtype_name(typed->in[0].type), (long long)typed->in[0].shape[0], (long long)typed->in[0].shape[1],
             dtype_name(typed->out[0].type), (long long)typed->out[0].shape[0], (long long)typed->out[0].shape[1],
             placement.share ? ", in place" : "", placement.shift != 0 ? ", shifted" : "",
             typed->accumulate != 0 ? ", adding" : "");
    launch want = reference_of(typed);
    cuda_launch_order(p->launches);
    launch got = cuda_launch_run(typed, placement);
    for (int o = 0; o < OPERATION_OUTPUTS; o++)
        if (typed->out[o].data != NULL)
            cuda_launch_compare(&got, &want, o, near, where);
    if (p->launches++ % 4 == 0) {
        cuda_launch_order(p->launches + 1000);
        launch again = cuda_launch_run(typed, placement);
        same_bits(&got, &again, where);
        launch_release(&again);
    }
    launch_release(&got);
    launch_release(&want);
}

/* Checks a launch (given in fp32) in every storage, overwriting and adding, then releases it. */
static void check_launch(void **state, launch *given, accuracy near) {
    const operation_signature *s = operation_signature_of(given->kind);
    bool gradients = strchr(s->output_types, 'G') != NULL, activations = strchr(s->input_types, 'A') != NULL;
    bool always_adds = given->kind == OPERATION_ADAMW || given->kind == OPERATION_STEP_RESULT;
    int count = gradients ? STORAGES_WITH_GRADIENTS : activations ? STORAGES : 1;
    for (int i = 0; i < count; i++)
        for (int adds = always_adds; adds <= (s->accumulates != 0); adds++) {
            launch typed = cuda_launch_typed(given, storages[i].activations, storages[i].gradients);
            typed.accumulate = adds ? s->accumulates : 0;
            check_typed(*state, &typed, near);
            launch_release(&typed);
        }
    launch_release(given);
}

static operand floats(int64_t rows, int64_t columns, uint64_t stream) {
    return operand_random(DTYPE_F32, rows, columns, 1, stream);
}

/* An output, filled with something to add to. */
static operand output(int64_t rows, int64_t columns) {
    return operand_random(DTYPE_F32, rows, columns, 1, 1000);
}

/* One rounding, or none. */
static const accuracy rounded_once = {.relative = 1};

/* ---- embedding ---- */

static void embedding(void **state) {
    for (int s = 0; s < SIZE_COUNT; s++)
        for (int positions = 0; positions < 2; positions++) {
            int64_t rows = s % 2 == 0 ? 12 : 70, sequence = s % 2 == 0 ? 4 : 2, vocabulary = 9;
            launch l = {.kind = OPERATION_EMBEDDING, .attributes = {.sequence = sequence}};
            l.in[0] = operand_random_integers(rows, vocabulary, 1);
            l.in[1] = floats(vocabulary, sizes[s], 2);
            if (positions)
                l.in[2] = floats(sequence + 1, sizes[s], 3);
            l.out[0] = output(rows, sizes[s]);
            check_launch(state, &l, rounded_once);
        }
}

/* Sums of at most 32 rows in fp32, which are added in fp64. */
static const accuracy sums_of_32 = {.relative = 1, .spread = 4};

static launch embedding_backward_launch(int64_t rows, int64_t vocabulary, int64_t width) {
    launch l = {.kind = OPERATION_EMBEDDING_BACKWARD};
    l.in[0] = floats(rows, width, 1);
    l.in[1] = operand_random_integers(rows, vocabulary, 2);
    l.in[2] = operand_order(&l.in[1]);
    l.out[0] = output(vocabulary, width);
    return l;
}

/* Pieces are 32 sorted tokens: runs within one, over two, over many, and ends on either side of their edges. */
static void embedding_backward(void **state) {
    const int64_t shapes[][2] = {{1, 1},  {515, 1}, {64, 2}, {63, 2},  {65, 2},
                                 {32, 1}, {33, 1},  {96, 7}, {70, 97}, {70, 300}};
    for (int s = 0; s < SIZE_COUNT; s++) {
        launch l = embedding_backward_launch(shapes[s % 10][0], shapes[s % 10][1], sizes[s]);
        check_launch(state, &l, sums_of_32);
    }
}

/* Nine of ten tokens are the same one. */
static void embedding_backward_of_a_frequent_token(void **state) {
    launch l = embedding_backward_launch(1200, 50, 24);
    for (int64_t i = 0; i < 1200; i++)
        if (i % 10 != 0)
            operand_set(&l.in[1], i, 13);
    operand_release(&l.in[2]);
    l.in[2] = operand_order(&l.in[1]);
    check_launch(state, &l, sums_of_32);
}

/* Every run of 1 to 65 equal tokens beside every offset in a piece. */
static void embedding_backward_runs(void **state) {
    for (int64_t before = 0; before < 34; before += 3)
        for (int64_t run = 1; run <= 66; run += 13) {
            launch l = embedding_backward_launch(before + run + 5, 4, 3);
            for (int64_t i = 0; i < before + run + 5; i++)
                operand_set(&l.in[1], i, i < before ? 0 : i < before + run ? 2 : 3);
            operand_release(&l.in[2]);
            l.in[2] = operand_order(&l.in[1]);
            launch typed = cuda_launch_typed(&l, DTYPE_F32, DTYPE_F32);
            check_typed(*state, &typed, sums_of_32);
            launch_release(&typed);
            launch_release(&l);
        }
}

static void position_backward(void **state) {
    for (int s = 0; s < SIZE_COUNT; s++)
        for (int64_t sequences = 1; sequences <= 20; sequences += 19) {
            int64_t sequence = 3;
            launch l = {.kind = OPERATION_POSITION_BACKWARD, .attributes = {.sequence = sequence}};
            l.in[0] = floats(sequences * sequence, sizes[s], 1);
            l.out[0] = output(sequence + 2, sizes[s]); /* more positions than the sequence is long */
            check_launch(state, &l, sums_of_32);
        }
}

/* ---- norm ---- */

static launch norm_launch(int64_t rows, int64_t width, norm_type type, bool residual, bool bias) {
    launch l = {.kind = OPERATION_NORM, .attributes = {.norm = type, .epsilon = 1e-5}};
    l.in[0] = floats(rows, width, 1);
    if (residual) {
        l.in[1] = floats(rows, width, 2);
        l.out[1] = output(rows, width);
    }
    l.in[2] = floats(width, 1, 3);
    if (bias)
        l.in[3] = floats(width, 1, 4);
    l.out[0] = output(rows, width);
    l.out[2] = output(rows, 2);
    return l;
}

/* A row's mean is a sum; its rounding is magnified by rstd in the result and in rstd itself, which is large for a row
 * of few that differ little: at most 1/sqrt(epsilon) = 316. */
static accuracy norm_accuracy(int64_t width) {
    double rstd = width > 16 ? 4 : 316;
    return (accuracy){.relative = 8 + rstd, .absolute = 4 * rstd};
}

static void norm(void **state) {
    for (int s = 0; s < SIZE_COUNT; s++)
        for (int options = 0; options < 8; options++) {
            norm_type type = (options & 1) != 0 ? NORM_LAYER : NORM_RMS;
            int64_t rows = options == 7 ? 37 : 5;
            launch l = norm_launch(rows, sizes[s], type, (options & 2) != 0, (options & 4) != 0);
            check_launch(state, &l, norm_accuracy(sizes[s]));
        }
}

/* Rows that shared memory holds without the weights, and rows that it does not hold. */
static void norm_of_wide_rows(void **state) {
    const int64_t widths[] = {1024, 5000, 12000, 25000, 50004};
    for (int w = 0; w < 5; w++) {
        launch l = norm_launch(2, widths[w], w % 2 == 0 ? NORM_LAYER : NORM_RMS, w % 2 == 0, true);
        check_launch(state, &l, norm_accuracy(widths[w]));
    }
}

static launch norm_backward_launch(int64_t rows, int64_t width, norm_type type, bool dsum, bool bias) {
    launch forward = norm_launch(rows, width, type, false, false);
    reference_launch(&forward);
    launch l = {.kind = OPERATION_NORM_BACKWARD, .attributes = forward.attributes};
    l.in[0] = floats(rows, width, 5);
    if (dsum)
        l.in[1] = floats(rows, width, 6);
    l.in[2] = forward.in[0], l.in[3] = forward.out[2], l.in[4] = forward.in[2];
    l.out[0] = output(rows, width);
    l.out[1] = output(width, 1);
    if (bias)
        l.out[2] = output(width, 1);
    operand_release(&forward.out[0]);
    return l;
}

/* Tiles are 32 rows, whose sums stay in fp32. */
static accuracy norm_backward_accuracy(const launch *l) {
    double largest = 1;
    for (int64_t row = 0; row < l->in[3].shape[0]; row++)
        largest = fmax(largest, operand_get(&l->in[3], 2 * row + 1));
    return (accuracy){.relative = 8 + largest, .spread = 8, .absolute = 8 * largest};
}

static void norm_backward(void **state) {
    const int64_t row_counts[] = {1, 2, 31, 32, 33, 65, 130};
    for (int s = 0; s < SIZE_COUNT; s++)
        for (int options = 0; options < 8; options += 1 + s % 2) {
            launch l = norm_backward_launch(row_counts[(s + options) % 7], sizes[s],
                                            (options & 1) != 0 ? NORM_LAYER : NORM_RMS, (options & 2) != 0,
                                            (options & 4) != 0);
            check_launch(state, &l, norm_backward_accuracy(&l));
        }
}

/* Sums, rows and weight that shared memory holds in part or not at all. */
static void norm_backward_of_wide_rows(void **state) {
    const int64_t widths[] = {768, 6000, 11000, 21000, 4000};
    for (int w = 0; w < 5; w++) {
        launch l = norm_backward_launch(3, widths[w], w % 2 == 0 ? NORM_LAYER : NORM_RMS, w % 2 == 0, w != 2);
        check_launch(state, &l, norm_backward_accuracy(&l));
    }
}

/* Sums of 64 rows in 8 chains in fp32, then fp64. */
static void column_sum(void **state) {
    const int64_t row_counts[] = {1, 3, 8, 63, 64, 65, 200};
    for (int s = 0; s < SIZE_COUNT; s++) {
        launch l = {.kind = OPERATION_COLUMN_SUM, .in = {floats(row_counts[s % 7], sizes[s], 1)}};
        l.out[0] = output(sizes[s], 1);
        check_launch(state, &l, (accuracy){.relative = 1, .spread = 4});
    }
}

/* More rows than 512 tiles of 64 hold. */
static void column_sum_of_many_rows(void **state) {
    launch l = {.kind = OPERATION_COLUMN_SUM, .in = {floats(40000, 2, 1)}, .out = {output(2, 1)}};
    check_launch(state, &l, (accuracy){.relative = 1, .spread = 4});
}

/* ---- layers ---- */

static void rope(void **state) {
    const int64_t sequences[] = {1, 2, 63, 64, 65, 127, 129};
    const int64_t heads[][2] = {{1, 1}, {3, 1}, {4, 2}, {2, 2}};
    for (int s = 0; s < 7; s++)
        for (int h = 0; h < 4; h++) {
            int64_t half = (const int64_t[]){1, 3, 8, 16, 20}[(s + h) % 5], rows = sequences[s] * (s < 2 ? 17 : 1);
            attributes a = {.sequence = sequences[s],
                            .heads = heads[h][0],
                            .kv_heads = heads[h][1],
                            .head_width = 2 * half,
                            .inverse = h % 2 != 0};
            int64_t width = (a.heads + 2 * a.kv_heads) * a.head_width;
            launch l = {.kind = OPERATION_ROPE, .attributes = a};
            l.in[0] = floats(rows, width, 1);
            l.in[1] = floats(sequences[s], half, 2);
            l.in[2] = floats(sequences[s], half, 3);
            l.out[0] = output(rows, width);
            check_launch(state, &l, (accuracy){.relative = 1, .spread = 2}); /* two products */
        }
}

/* Values of ordinary size and, in front, those where activations saturate. */
static operand activation_values(int64_t rows, int64_t columns, uint64_t stream) {
    const float special[] = {0, -0.0f, 1e-30f, -1e-20f, 20, -20, 100, -100};
    enum { SPECIAL = sizeof special / sizeof *special };
    operand o = operand_random(DTYPE_F32, rows, columns, 4, stream);
    for (int i = 0; i < SPECIAL && operand_count(&o) >= 2 * SPECIAL; i++)
        operand_set(&o, i, (double)special[i]);
    return o;
}

/* e^u turns the roundings of u, which is up to 11 for |x| <= 4, into relative errors: about 30 roundoffs. Where gelu
 * is almost 0 its fp64 reference, too, is only what is left of 1 - 1: the spread of 1e-6. */
static const accuracy activation_accuracy = {.relative = 40, .spread = 1e-6};

/* 1 - s has an absolute error of a roundoff where the sigmoid s is near 1, times x (2u)' = 20 for |x| = 4. */
static const accuracy gelu_backward_accuracy = {.relative = 8, .absolute = 24};

static void gelu(void **state) {
    for (int s = 0; s < SIZE_COUNT; s++) {
        int64_t rows = 3;
        launch forward = {.kind = OPERATION_GELU, .in = {activation_values(rows, sizes[s], 1)}};
        forward.out[0] = output(rows, sizes[s]);
        check_launch(state, &forward, activation_accuracy);
        launch backward = {.kind = OPERATION_GELU_BACKWARD};
        backward.in[0] = floats(rows, sizes[s], 2);
        backward.in[1] = activation_values(rows, sizes[s], 1);
        backward.out[0] = output(rows, sizes[s]);
        check_launch(state, &backward, gelu_backward_accuracy);
    }
}

static void swiglu(void **state) {
    for (int s = 0; s < SIZE_COUNT; s++) {
        int64_t rows = 11;
        launch forward = {.kind = OPERATION_SWIGLU, .in = {activation_values(rows, 2 * sizes[s], 1)}};
        forward.out[0] = output(rows, sizes[s]);
        check_launch(state, &forward, activation_accuracy);
        launch backward = {.kind = OPERATION_SWIGLU_BACKWARD};
        backward.in[0] = floats(rows, sizes[s], 2);
        backward.in[1] = activation_values(rows, 2 * sizes[s], 1);
        backward.out[0] = output(rows, 2 * sizes[s]);
        check_launch(state, &backward, (accuracy){.relative = 8, .spread = 2});
    }
}

static void elementwise(void **state) {
    for (int s = 0; s < SIZE_COUNT; s++) {
        launch add = {.kind = OPERATION_ADD, .in = {floats(3, sizes[s], 1), floats(3, sizes[s], 2)}};
        add.out[0] = output(3, sizes[s]);
        check_launch(state, &add, rounded_once);
        for (int i = 0; i < STORAGES; i++) {
            launch fill = {.kind = OPERATION_FILL, .attributes = {.value = 0.1}};
            fill.out[0] = operand_make(storages[i].activations, 3, sizes[s]);
            check_typed(*state, &fill, rounded_once);
            launch_release(&fill);
        }
    }
}

/* 32-bit patterns: all that 16 bits widen to, and those around where rounding decides. */
static operand patterns(dtype type) {
    enum { STEP = 7, HALVES = (1 << 16) / STEP, AROUND = 5 };
    static const uint32_t last_bits[AROUND] = {0, 0x0fff, 0x1000, 0x7fff, 0x8001};
    operand o = operand_make(type, type == DTYPE_F32 ? HALVES * AROUND + 3 : HALVES + 3, 1);
    for (int64_t i = 0; i < operand_count(&o); i++) {
        const uint16_t half = (uint16_t)(i * STEP);
        const uint32_t bits = (uint32_t)half << 16 | last_bits[i / HALVES % AROUND];
        memcpy((char *)o.data + dtype_bytes(type) * i, type == DTYPE_F32 ? (const void *)&bits : (const void *)&half,
               (size_t)dtype_bytes(type));
    }
    return o;
}

/* Exact; a NaN becomes some NaN. */
static void cast(void **state) {
    progress *p = *state;
    for (int pair = 0; pair < STORAGES * STORAGES; pair++) {
        launch l = {.kind = OPERATION_CAST, .in = {patterns(storages[pair / STORAGES].activations)}};
        l.out[0] = operand_make(storages[pair % STORAGES].activations, operand_count(&l.in[0]), 1);
        launch got = cuda_launch_run(&l, placement_of(p->launches++, &l));
        for (int64_t i = 0; i < operand_count(&l.in[0]); i++) {
            operand_set(&l.out[0], i, operand_get(&l.in[0], i));
            double want = operand_get(&l.out[0], i), found = operand_get(&got.out[0], i);
            if (isnan(want) ? !isnan(found) : want != found || signbit(want) != signbit(found))
                fail_msg("cast from %s to %s: %g becomes %g", dtype_name(l.in[0].type), dtype_name(l.out[0].type),
                         operand_get(&l.in[0], i), found);
        }
        launch_release(&got);
        launch_release(&l);
    }
}

/* ---- loss ---- */

static launch cross_entropy_launch(int64_t rows, int64_t vocabulary, bool gradient) {
    const double scalars[SCALAR_COUNT] = {[SCALAR_GRADIENT_SCALE] = 0.37};
    const double loss_scale[LOSS_SCALE_COUNT] = {[LOSS_SCALE] = 1024, [LOSS_SCALE_GOOD_STEPS] = 3};
    launch l = {.kind = OPERATION_CROSS_ENTROPY};
    l.in[0] = operand_random(DTYPE_F32, rows, vocabulary, 4, 1);
    l.in[1] = operand_random_integers(rows, vocabulary, 2);
    l.in[2] = operand_of_doubles(scalars, SCALAR_COUNT);
    if (vocabulary % 2 == 0)
        l.in[3] = operand_of_doubles(loss_scale, LOSS_SCALE_COUNT);
    l.out[0] = output(rows, 1);
    if (gradient)
        l.out[1] = output(rows, vocabulary);
    return l;
}

/* logit - largest is up to 8, and its rounding is passed on by exp. */
static const accuracy cross_entropy_accuracy = {.relative = 24, .spread = 1};

static void cross_entropy(void **state) {
    const int64_t vocabularies[] = {1, 2, 15, 17, 64, 257, 512, 513, 1025, 9001};
    for (int v = 0; v < 10; v++)
        for (int gradient = 0; gradient < 2; gradient++) {
            launch l = cross_entropy_launch(vocabularies[v] > 2000 ? 2 : 5, vocabularies[v], gradient != 0);
            if (l.in[1].shape[0] > 2)
                operand_set(&l.in[1], 2, -1); /* not counted */
            check_launch(state, &l, cross_entropy_accuracy);
        }
}

/* More than shared memory holds, in each storage. */
static void cross_entropy_of_a_large_vocabulary(void **state) {
    launch l = cross_entropy_launch(1, 60001, true);
    check_launch(state, &l, cross_entropy_accuracy);
}

/* The gradient elsewhere than 16 bytes around the logits: element by element. */
static void cross_entropy_with_unlike_alignment(void **state) {
    (void)state;
    launch l = cross_entropy_launch(3, 70, true), want = cuda_launch_reference(&l);
    launch got = cuda_launch_run(&l, (cuda_placement){.apart = 1});
    for (int o = 0; o < 2; o++)
        cuda_launch_compare(&got, &want, o, cross_entropy_accuracy, "cross_entropy, unlike alignment");
    launch_release(&got);
    launch_release(&want);
    launch_release(&l);
}

/* Logits that are masked, that underflow, and whose largest comes first, last or in between; one that is NaN. */
static void cross_entropy_extremes(void **state) {
    for (int which = 0; which < 4; which++) {
        int64_t vocabulary = 1500;
        launch l = cross_entropy_launch(1, vocabulary, true);
        for (int64_t v = 0; v < vocabulary; v++) {
            double value = operand_get(&l.in[0], v);
            const double changed[] = {v < 700 ? -INFINITY : value, v > 700 ? -INFINITY : value, 0.1 * (double)v,
                                      -0.1 * (double)v};
            operand_set(&l.in[0], v, changed[which]);
        }
        operand_set(&l.in[1], 0, 700);
        check_launch(state, &l, (accuracy){.relative = 100, .spread = 1}); /* logits 87 below */
    }
    launch l = cross_entropy_launch(1, 1500, true);
    operand_set(&l.in[0], 1234, NAN);
    check_launch(state, &l, cross_entropy_accuracy);
}

/* ---- the end of a step ---- */

/* In fp64: the order of a sum of n changes its last bits. */
static void sum(void **state) {
    for (int s = 0; s <= SIZE_COUNT; s++) {
        launch l = {.kind = OPERATION_SUM, .out = {operand_make(DTYPE_F64, 1, 1)}};
        l.in[0] = floats(s < SIZE_COUNT ? sizes[s] : 10001, 1, 1);
        check_launch(state, &l, (accuracy){.spread = 1024});
    }
}

/* A shard of 5 granules: segments start and end inside vectors and granules, and everything else is NaN. */
enum { GRANULE = 512, GRANULES = 5 };
static const segment segments[] = {
    {0, 1, false}, {64, 200, true}, {320, 833, true}, {1216, 17, false}, {1280, 900, true},
};
enum { SEGMENTS = sizeof segments / sizeof *segments };

static bool in_segment(int64_t element) {
    bool inside = false;
    for (int i = 0; i < SEGMENTS; i++)
        inside = inside || (element >= segments[i].offset && element < segments[i].offset + segments[i].count);
    return inside;
}

static operand shard(uint64_t stream) {
    operand o = floats(GRANULE * GRANULES, 1, stream);
    for (int64_t i = 0; i < GRANULE * GRANULES; i++)
        if (!in_segment(i))
            operand_set(&o, i, NAN);
    return o;
}

static void granule_norm(void **state) {
    for (int64_t granule = 1; granule <= GRANULE; granule *= 8) {
        attributes a = {.segments = segments, .segment_count = SEGMENTS, .granule = granule};
        launch l = {.kind = OPERATION_GRANULE_NORM, .attributes = a, .in = {shard(1)}};
        l.out[0] = operand_random(DTYPE_F64, GRANULE * GRANULES / granule, 1, 1, 2);
        check_launch(state, &l, (accuracy){.relative = 512});
    }
}

/* The bits of a granule are the same wherever in a shard it lies. */
static void granule_norm_is_of_the_granule_alone(void **state) {
    (void)state;
    const segment alone = {3, 450, false}, among[] = {{0, 1000, false}, {1539, 450, false}};
    attributes a = {.segments = &alone, .segment_count = 1, .granule = GRANULE};
    launch l = {.kind = OPERATION_GRANULE_NORM, .attributes = a, .in = {floats(GRANULE, 1, 1)}};
    launch m = {.kind = OPERATION_GRANULE_NORM, .attributes = a, .in = {floats(GRANULE * GRANULES, 1, 1)}};
    m.attributes.segments = among, m.attributes.segment_count = 2;
    memcpy((float *)m.in[0].data + 3 * GRANULE, l.in[0].data, GRANULE * sizeof(float));
    l.out[0] = operand_make(DTYPE_F64, 1, 1), m.out[0] = operand_make(DTYPE_F64, GRANULES, 1);
    launch first = cuda_launch_run(&l, (cuda_placement){0});
    launch second = cuda_launch_run(&m, (cuda_placement){0});
    assert_true(operand_get(&first.out[0], 0) == operand_get(&second.out[0], 3));
    launch_release(&first), launch_release(&second), launch_release(&l), launch_release(&m);
}

/* Two ranks that hold a shard each, three units (one without squares on the second rank), two passes. */
static launch step_result_launch(double clip) {
    static const granule_columns columns[] = {{3, 2, 0}, {1, 1, 2}, {4, 2, 3}};
    attributes a = {
        .columns = columns, .column_count = 3, .group_size = 2, .loss_column = 5, .passes = 2, .clip = clip};
    const double scalars[SCALAR_COUNT] = {[SCALAR_GRADIENT_SCALE] = 0.125};
    launch l = {.kind = OPERATION_STEP_RESULT, .attributes = a};
    l.in[0] = operand_random(DTYPE_F64, 2, 7, 1, 1);
    for (int64_t i = 0; i < 14; i++)
        operand_set(&l.in[0], i, fabs(operand_get(&l.in[0], i)));
    l.in[1] = operand_of_doubles(scalars, SCALAR_COUNT);
    l.out[0] = operand_random(DTYPE_F64, RESULT_COUNT, 1, 1, 2);
    l.out[1] = operand_make(DTYPE_F64, 1, 1);
    operand_set(&l.out[1], 0, 41);
    return l;
}

/* One order, so the bits of the reference. */
static const accuracy exact = {0};

static void step_result(void **state) {
    const double clips[] = {0, 0.1, 100};
    for (int c = 0; c < 3; c++) {
        launch l = step_result_launch(clips[c]);
        check_launch(state, &l, exact);
    }
    const int64_t broken[] = {0, 9, 11, 13}; /* squares of unit 0; nobody's (not read); of unit 2; a loss */
    for (int b = 0; b < 4; b++)
        for (int infinite = 0; infinite < 2; infinite++) {
            launch l = step_result_launch(1);
            operand_set(&l.in[0], broken[b], infinite ? INFINITY : NAN);
            check_launch(state, &l, exact);
        }
    launch l = step_result_launch(1); /* of two broken units the first is named */
    operand_set(&l.in[0], 7, NAN);
    operand_set(&l.in[0], 11, INFINITY);
    check_launch(state, &l, exact);
}

/* More granules and passes than a block has threads. */
static void step_result_of_a_large_model(void **state) {
    static const granule_columns columns[] = {{700, 350, 0}, {0, 1, 350}, {259, 130, 350}};
    launch l = step_result_launch(0.5);
    l.attributes.columns = columns;
    l.attributes.loss_column = 480, l.attributes.passes = 300;
    operand_release(&l.in[0]);
    l.in[0] = operand_random(DTYPE_F64, 2, 780, 1, 1);
    for (int64_t i = 0; i < operand_count(&l.in[0]); i++)
        operand_set(&l.in[0], i, fabs(operand_get(&l.in[0], i)));
    check_launch(state, &l, exact);
}

/* What dynamic scaling does with each kind of step, and that a constant scale stays. */
static void loss_scale(void **state) {
    static const struct {
        double scale, good_steps;
        int64_t interval;
        double square, loss; /* that replace one */
    } cases[] = {
        {65536, 0, 2000, 1, 1},    {65536, 1999, 2000, 1, 1},  {65536, 1999, 2000, INFINITY, 1},
        {2, 7, 2000, INFINITY, 1}, {1, 7, 2000, INFINITY, 1},  {1, 1999, 2000, 1, 1},
        {65536, 7, 2000, 1, NAN},  {65536, 7, 2000, NAN, NAN}, {1000, 0, 0, 1, 1},
        {1000, 0, 0, INFINITY, 1}, {65536, 7, 2000, NAN, 1},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        launch l = step_result_launch(0.1);
        const double scale[LOSS_SCALE_COUNT] = {cases[c].scale, cases[c].good_steps};
        l.out[2] = operand_of_doubles(scale, LOSS_SCALE_COUNT);
        l.attributes.loss_scale_interval = cases[c].interval;
        operand_set(&l.in[0], 0, cases[c].square);
        operand_set(&l.in[0], 13, cases[c].loss);
        check_launch(state, &l, exact);
    }
}

static launch adamw_launch(double bad, double count) {
    attributes a = {.segments = segments,
                    .segment_count = SEGMENTS,
                    .beta_first = 0.9,
                    .beta_second = 0.95,
                    .epsilon = 1e-8,
                    .weight_decay = 0.1};
    const double scalars[SCALAR_COUNT] = {[SCALAR_LEARNING_RATE] = 0.01};
    double result[RESULT_COUNT] = {[RESULT_CLIP] = 0.3, [RESULT_BAD] = bad};
    launch l = {.kind = OPERATION_ADAMW, .attributes = a, .in = {shard(1)}};
    l.in[1] = operand_of_doubles(scalars, SCALAR_COUNT);
    l.in[2] = operand_of_doubles(result, RESULT_COUNT);
    l.in[3] = operand_of_doubles(&count, 1);
    for (int o = 0; o < 3; o++)
        l.out[o] = shard(2 + (uint64_t)o);
    for (int64_t i = 0; i < GRANULE * GRANULES; i++)
        operand_set(&l.out[2], i, fabs(operand_get(&l.out[2], i)));
    return l;
}

/* Gradient, moments and master are about 1 and the moments' own roundings come before the division. */
static void adamw(void **state) {
    for (int run = 0; run < 6; run++) {
        launch l = adamw_launch(run == 0, run < 2 ? 3 : pow(10, run - 2));
        check_launch(state, &l, (accuracy){.relative = 4, .spread = 1});
    }
}

/* A shard of several tiles, and a segment that spans them. */
static void adamw_over_tiles(void **state) {
    static const segment large[] = {{0, 4100, true}, {4160, 30, false}, {4224, 9000, true}};
    launch l = adamw_launch(0, 7);
    l.attributes.segments = large, l.attributes.segment_count = 3;
    operand_release(&l.in[0]);
    l.in[0] = floats(13300, 1, 1);
    for (int o = 0; o < 3; o++) {
        operand_release(&l.out[o]);
        l.out[o] = floats(13300, 1, 2 + (uint64_t)o);
    }
    for (int64_t i = 0; i < 13300; i++)
        operand_set(&l.out[2], i, fabs(operand_get(&l.out[2], i)));
    check_launch(state, &l, (accuracy){.relative = 4, .spread = 1});
}

/* ---- nothing to do ---- */

/* No rows, no segments, no elements: outputs that are sums become zero, and no launch is refused. */
static void nothing(void **state) {
    const int64_t width = 12;
    attributes a = {.sequence = 4, .heads = 1, .kv_heads = 1, .head_width = 4, .granule = 4, .epsilon = 1e-5};
    const double scalars[SCALAR_COUNT] = {0}, result[RESULT_COUNT] = {0}, count = 1;
    operand f = {0}, tokens = {0}, doubles = {0};
    f = floats(0, width, 1), tokens = operand_random_integers(0, 5, 1);
    doubles = operand_of_doubles(scalars, SCALAR_COUNT);
    operand results = operand_of_doubles(result, RESULT_COUNT), counts = operand_of_doubles(&count, 1);
    operand weight = floats(width, 1, 2), table = floats(5, width, 3), statistics = floats(0, 2, 1);
    operand rotation = floats(4, 2, 1), none = floats(0, 1, 1), squares = operand_make(DTYPE_F64, 0, 1);
    operand total = operand_make(DTYPE_F64, 1, 1), double_width = floats(0, 2 * width, 1);
    operand three = operand_random_integers(3, 3, 1), thin = floats(3, 0, 1);
    const launch launches[] = {
        {.kind = OPERATION_EMBEDDING, .in = {tokens, table}, .out = {f}},
        {.kind = OPERATION_EMBEDDING_BACKWARD, .in = {f, tokens, tokens}, .out = {table}},
        {.kind = OPERATION_POSITION_BACKWARD, .in = {f}, .out = {table}},
        {.kind = OPERATION_EMBEDDING_BACKWARD, .in = {thin, three, three}, .out = {thin}},
        {.kind = OPERATION_POSITION_BACKWARD, .in = {thin}, .out = {thin}},
        {.kind = OPERATION_COLUMN_SUM, .in = {thin}, .out = {none}},
        {.kind = OPERATION_NORM, .in = {f, {0}, weight}, .out = {f, {0}, statistics}},
        {.kind = OPERATION_NORM_BACKWARD, .in = {f, {0}, f, statistics, weight}, .out = {f, weight, weight}},
        {.kind = OPERATION_COLUMN_SUM, .in = {f}, .out = {weight}},
        {.kind = OPERATION_ROPE, .in = {f, rotation, rotation}, .out = {f}},
        {.kind = OPERATION_GELU, .in = {f}, .out = {f}},
        {.kind = OPERATION_GELU_BACKWARD, .in = {f, f}, .out = {f}},
        {.kind = OPERATION_SWIGLU, .in = {double_width}, .out = {f}},
        {.kind = OPERATION_SWIGLU_BACKWARD, .in = {f, double_width}, .out = {double_width}},
        {.kind = OPERATION_CROSS_ENTROPY, .in = {f, tokens, doubles}, .out = {none, f}},
        {.kind = OPERATION_ADD, .in = {f, f}, .out = {f}},
        {.kind = OPERATION_FILL, .out = {f}},
        {.kind = OPERATION_CAST, .in = {none}, .out = {none}},
        {.kind = OPERATION_SUM, .in = {none}, .out = {total}},
        {.kind = OPERATION_GRANULE_NORM, .in = {none}, .out = {squares}},
        {.kind = OPERATION_GRANULE_NORM, .in = {weight}, .out = {total}},
        {.kind = OPERATION_ADAMW, .in = {none, doubles, results, counts}, .out = {none, none, none}},
        {.kind = OPERATION_ADAMW, .in = {weight, doubles, results, counts}, .out = {weight, weight, weight}},
    };
    for (size_t i = 0; i < sizeof launches / sizeof *launches; i++) {
        launch l = launches[i];
        l.attributes = a;
        if (l.kind == OPERATION_GRANULE_NORM)
            l.attributes.granule = width;
        l.accumulate = l.kind == OPERATION_ADAMW ? 7 : 0;
        check_typed(*state, &l, exact);
    }
    operand all[] = {f,        tokens, doubles, results, counts,       weight, table, statistics,
                     rotation, none,   squares, total,   double_width, three,  thin};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        operand_release(&all[i]);
}

int main(void) {
    static progress p;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(embedding, &p),
        cmocka_unit_test_prestate(embedding_backward, &p),
        cmocka_unit_test_prestate(embedding_backward_of_a_frequent_token, &p),
        cmocka_unit_test_prestate(embedding_backward_runs, &p),
        cmocka_unit_test_prestate(position_backward, &p),
        cmocka_unit_test_prestate(norm, &p),
        cmocka_unit_test_prestate(norm_of_wide_rows, &p),
        cmocka_unit_test_prestate(norm_backward, &p),
        cmocka_unit_test_prestate(norm_backward_of_wide_rows, &p),
        cmocka_unit_test_prestate(column_sum, &p),
        cmocka_unit_test_prestate(column_sum_of_many_rows, &p),
        cmocka_unit_test_prestate(rope, &p),
        cmocka_unit_test_prestate(gelu, &p),
        cmocka_unit_test_prestate(swiglu, &p),
        cmocka_unit_test_prestate(elementwise, &p),
        cmocka_unit_test_prestate(cast, &p),
        cmocka_unit_test_prestate(cross_entropy, &p),
        cmocka_unit_test_prestate(cross_entropy_of_a_large_vocabulary, &p),
        cmocka_unit_test_prestate(cross_entropy_with_unlike_alignment, &p),
        cmocka_unit_test_prestate(cross_entropy_extremes, &p),
        cmocka_unit_test_prestate(sum, &p),
        cmocka_unit_test_prestate(granule_norm, &p),
        cmocka_unit_test_prestate(granule_norm_is_of_the_granule_alone, &p),
        cmocka_unit_test_prestate(step_result, &p),
        cmocka_unit_test_prestate(step_result_of_a_large_model, &p),
        cmocka_unit_test_prestate(loss_scale, &p),
        cmocka_unit_test_prestate(adamw, &p),
        cmocka_unit_test_prestate(adamw_over_tiles, &p),
        cmocka_unit_test_prestate(nothing, &p),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
