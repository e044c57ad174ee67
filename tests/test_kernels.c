/* Every CPU kernel of every instruction set and storage against the reference kernel in double on the operands as they
 * are stored, at sizes around vector and block
 * edges, with 1, 2 and 3 threads (which must give the same bits), adding and overwriting, with and without optional
 * operands, and with outputs in the bytes of inputs where the signature allows it. */
#include "engine/checked.h"
#include "engine/device/cpu/processor.h"
#include "engine/device/half.h"
#include "engine/device/reference/reference.h"
#include "engine/device/update.h"
#include "support/launches.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 3, ALIGNMENT = 256 };

static const int64_t sizes[] = {1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 257, 515};
enum { SIZE_COUNT = sizeof sizes / sizeof *sizes };

/* What every test gets: the tables that this machine can execute, and a pool for each number of threads. */
typedef struct kernels {
    const cpu_kernel_table *tables;
    int table_count;
    pool *pools[THREADS];
} kernels;

static void run_kernel(const cpu_kernel *kernel, pool *p, launch *l) {
    size_t bytes = kernel->workspace != NULL ? kernel->workspace(l, pool_threads(p)) : 0;
    void *workspace = aligned_alloc(ALIGNMENT, (size_t)round_up((int64_t)bytes, ALIGNMENT));
    assert_true(bytes == 0 || workspace != NULL);
    if (bytes > 0)
        memset(workspace, 0xff, bytes); /* its contents are undefined: NaN */
    l->workspace = workspace;
    kernel->run(p, l);
    free(workspace);
    l->workspace = NULL;
}

static void same_bits(const launch *a, const launch *b, const char *where) {
    for (int o = 0; o < OPERATION_OUTPUTS; o++)
        if (a->out[o].data != NULL) {
            size_t bytes = (size_t)(operand_count(&a->out[o]) * dtype_bytes(a->out[o].type));
            if (memcmp(a->out[o].data, b->out[o].data, bytes) != 0)
                fail_msg("%s, %s: bits depend on the number of threads", where,
                         operation_signature_of(a->kind)->outputs[o]);
        }
}

/* The storages that a launch is executed in: of its operands A, and of its outputs G. */
typedef struct storages {
    dtype storage, gradient;
} storages;

/* What the reference makes of the operands as they are stored. The residual sum of a norm is rounded before anything is
 * computed of it: there the reference starts from the sum that was stored, which `got` holds. */
static launch wanted_of(const launch *stored, const launch *got) {
    launch want = launch_clone(stored, DTYPE_F64, false);
    const bool from_sum =
        stored->kind == OPERATION_NORM && stored->in[1].data != NULL && stored->in[0].type != DTYPE_F32;
    reference_launch(&want);
    if (!from_sum)
        return want;
    launch done = launch_clone(got, DTYPE_F64, false), again = want;
    again.in[0] = done.out[1];
    again.in[1].data = again.out[1].data = NULL;
    reference_launch(&again);
    launch_release(&done);
    return want;
}

static void check_table(const kernels *k, const cpu_kernel_table *table, const launch *given, storages as,
                        accuracy near, bool share) {
    launch results[THREADS], stored = launch_store(given, as.storage, as.gradient, false);
    const cpu_kernel *kernel = cpu_kernel_for(table, &stored);
    assert_non_null(kernel->run);
    assert_int_equal(operation_wrong_type(&stored), -1);
    char where[200];
    for (int t = 0; t < THREADS; t++) {
        snprintf(where, sizeof where, "%s of %s in %s to %s%s, in[0] %lld x %lld, out[0] %lld x %lld",
                 operation_signature_of(given->kind)->name, table->isa, dtype_name(as.storage), dtype_name(as.gradient),
                 share ? ", in place" : "", (long long)given->in[0].shape[0], (long long)given->in[0].shape[1],
                 (long long)given->out[0].shape[0], (long long)given->out[0].shape[1]);
        results[t] = launch_store(given, as.storage, as.gradient, share);
        run_kernel(kernel, k->pools[t], &results[t]);
        same_bits(&results[t], &results[0], where);
    }
    launch want = wanted_of(&stored, &results[0]);
    for (int o = 0; o < OPERATION_OUTPUTS; o++)
        if (given->out[o].data != NULL)
            launch_compare(&results[0], &want, o, near, where);
    launch_release(&want);
    launch_release(&stored);
    for (int t = 0; t < THREADS; t++)
        launch_release(&results[t]);
}

/* Whether the kind has operands of this letter. */
static bool has_letter(operation_kind kind, char letter) {
    const operation_signature *s = operation_signature_of(kind);
    return strchr(s->input_types, letter) != NULL || strchr(s->output_types, letter) != NULL;
}

static void check_in_storages(const kernels *k, const launch *given, storages as, accuracy near) {
    for (int i = 0; i < k->table_count; i++)
        for (int share = 0; share <= launch_can_share(given); share++)
            check_table(k, &k->tables[i], given, as, near, share != 0);
}

/* Checks every way to execute a launch, as given (in fp32, outputs filled with something), then releases it. */
static void check_launch(void **state, launch *given, accuracy near) {
    const kernels *k = *state;
    const dtype halves[] = {DTYPE_BF16, DTYPE_F16};
    uint32_t accumulators = operation_signature_of(given->kind)->accumulates;
    bool always_adds = given->kind == OPERATION_ADAMW || given->kind == OPERATION_STEP_RESULT;
    bool stored = has_letter(given->kind, 'A') || has_letter(given->kind, 'S');
    for (int adds = always_adds; adds <= (accumulators != 0); adds++) {
        given->accumulate = adds ? accumulators : 0;
        check_in_storages(k, given, (storages){DTYPE_F32, DTYPE_F32}, near);
        for (int h = 0; stored && h < 2; h++) {
            check_in_storages(k, given, (storages){halves[h], halves[h]}, near);
            if (has_letter(given->kind, 'G'))
                check_in_storages(k, given, (storages){halves[h], DTYPE_F32}, near);
        }
    }
    launch_release(given);
}

static operand floats(int64_t rows, int64_t columns, uint64_t stream) {
    return operand_random(DTYPE_F32, rows, columns, 1, stream);
}

/* An output, filled with something that overwriting must not leave. */
static operand output(int64_t rows, int64_t columns) {
    return operand_random(DTYPE_F32, rows, columns, 1, 1000);
}

static void every_computing_kind_has_a_kernel(void **state) {
    const kernels *k = *state;
    int missing = 0;
    const dtype storages[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    for (int i = 0; i < 3 * k->table_count; i++)
        for (int kind = 0; kind < OPERATION_COPY_IN; kind++)
            if (k->tables[i / 3].kernels[storages[i % 3]][kind].run == NULL) {
                print_error("%s has no kernel for %s in %s\n", k->tables[i / 3].isa,
                            operation_signature_of((operation_kind)kind)->name, dtype_name(storages[i % 3]));
                missing++;
            }
    assert_int_equal(missing, 0);
}

/* One rounding, or none. */
static const accuracy rounded_once = {.relative = 1};

static void embedding(void **state) {
    for (int s = 0; s < SIZE_COUNT; s++)
        for (int positions = 0; positions < 2; positions++) {
            int64_t rows = 12, sequence = 4, vocabulary = 9;
            launch l = {.kind = OPERATION_EMBEDDING, .attributes = {.sequence = sequence}};
            l.in[0] = operand_random_integers(rows, vocabulary, 1);
            l.in[1] = floats(vocabulary, sizes[s], 2);
            if (positions)
                l.in[2] = floats(sequence + 1, sizes[s], 3);
            l.out[0] = output(rows, sizes[s]);
            check_launch(state, &l, rounded_once);
        }
}

/* Sums in double, rounded once; adding rounds what it adds to no further. */
static void embedding_backward(void **state) {
    const int64_t vocabularies[] = {1, 2, 97, 1000};
    for (int s = 0; s < SIZE_COUNT; s++)
        for (int v = 0; v < 4; v++) {
            int64_t rows = v == 0 ? 515 : 70;
            launch l = {.kind = OPERATION_EMBEDDING_BACKWARD};
            l.in[0] = floats(rows, sizes[s], 1);
            l.in[1] = operand_random_integers(rows, vocabularies[v], 2);
            l.in[2] = operand_order(&l.in[1]);
            l.out[0] = output(vocabularies[v], sizes[s]);
            check_launch(state, &l, rounded_once);
        }
}

static void position_backward(void **state) {
    for (int s = 0; s < SIZE_COUNT; s++)
        for (int64_t sequences = 1; sequences <= 40; sequences += 39) {
            int64_t sequence = 7;
            launch l = {.kind = OPERATION_POSITION_BACKWARD, .attributes = {.sequence = sequence}};
            l.in[0] = floats(sequences * sequence, sizes[s], 1);
            l.out[0] = output(sequence + 3, sizes[s]); /* more positions than the sequence is long */
            check_launch(state, &l, rounded_once);
        }
}

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

/* A row's mean is a sum; its rounding, like that of s itself (below 2), is magnified by rstd in the result and in rstd
 * itself, which is large for a row of two that differ little. */
static accuracy norm_accuracy(const launch *forward) {
    double largest = 0;
    for (int64_t row = 0; row < forward->out[2].shape[0]; row++)
        largest = fmax(largest, operand_get(&forward->out[2], 2 * row + 1));
    return (accuracy){.relative = 4 + largest, .absolute = 4 * largest};
}

static void norm(void **state) {
    for (int s = 0; s < SIZE_COUNT; s++)
        for (int options = 0; options < 8; options++) {
            norm_type type = (options & 1) != 0 ? NORM_LAYER : NORM_RMS;
            launch l = norm_launch(options == 7 ? 300 : 5, sizes[s], type, (options & 2) != 0, (options & 4) != 0);
            reference_launch(&l);
            accuracy near = norm_accuracy(&l);
            for (int64_t i = 0; i < operand_count(&l.out[0]); i++)
                operand_set(&l.out[0], i, NAN);
            check_launch(state, &l, near);
        }
}

/* Row numbers around the tiles of partial sums (8 rows, and 64 tiles of more). */
static void norm_backward(void **state) {
    const int64_t row_counts[] = {1, 7, 8, 9, 65, 513, 1000};
    for (int s = 0; s < SIZE_COUNT; s++)
        for (int options = 0; options < 8; options++) {
            int64_t rows = row_counts[(s + options) % 7], width = sizes[s];
            launch forward = norm_launch(rows, width, (options & 1) != 0 ? NORM_LAYER : NORM_RMS, false, false);
            reference_launch(&forward);
            launch l = {.kind = OPERATION_NORM_BACKWARD, .attributes = forward.attributes};
            l.in[0] = floats(rows, width, 5);
            if ((options & 2) != 0)
                l.in[1] = floats(rows, width, 6);
            l.in[2] = forward.in[0], l.in[3] = forward.out[2], l.in[4] = forward.in[2];
            l.out[0] = output(rows, width);
            l.out[1] = output(width, 1);
            if ((options & 4) != 0)
                l.out[2] = output(width, 1);
            accuracy near = norm_accuracy(&forward);
            near.spread = sqrt((double)rows); /* of the sums for weight and bias */
            operand_release(&forward.out[0]);
            check_launch(state, &l, near);
        }
}

/* A sum of k products in fp32 has a rounding error of about sqrt(k) roundoffs of its largest partial sum. */
static void matmul(void **state) {
    const int64_t edges[] = {1, 3, 15, 16, 17, 63, 65, 129, 257};
    enum { EDGES = sizeof edges / sizeof *edges };
    for (int i = 0; i < 4 * EDGES; i++) {
        int64_t m = edges[i % EDGES], n = edges[(i * 5 + 2) % EDGES], k = edges[(i * 7 + i / EDGES) % EDGES];
        bool a = (i & 1) != 0, b = (i & 2) != 0;
        launch l = {.kind = OPERATION_MATMUL, .attributes = {.transpose_a = a, .transpose_b = b}};
        l.in[0] = a ? floats(k, m, 1) : floats(m, k, 1);
        l.in[1] = b ? floats(n, k, 2) : floats(k, n, 2);
        if (i % 3 == 0)
            l.in[2] = floats(n, 1, 3);
        l.out[0] = output(m, n);
        check_launch(state, &l, (accuracy){.relative = 2, .spread = 2 + sqrt((double)k)});
    }
}

static void column_sum(void **state) {
    const int64_t row_counts[] = {1, 3, 8, 9, 66, 513, 1000};
    for (int s = 0; s < SIZE_COUNT; s++) {
        launch l = {.kind = OPERATION_COLUMN_SUM, .in = {floats(row_counts[s % 7], sizes[s], 1)}};
        l.out[0] = output(sizes[s], 1);
        check_launch(state, &l, (accuracy){.relative = 1, .spread = 4}); /* sums of at most 16 in fp32, then double */
    }
}

static void rope(void **state) {
    for (int s = 0; s < SIZE_COUNT; s++)
        for (int inverse = 0; inverse < 2; inverse++) {
            int64_t half = sizes[s], rows = 6, sequence = 3, heads = 3, kv_heads = 1;
            attributes a = {.sequence = sequence,
                            .heads = heads,
                            .kv_heads = kv_heads,
                            .head_width = 2 * half,
                            .inverse = inverse != 0};
            launch l = {.kind = OPERATION_ROPE, .attributes = a};
            l.in[0] = floats(rows, (heads + 2 * kv_heads) * 2 * half, 1);
            l.in[1] = floats(sequence, half, 2);
            l.in[2] = floats(sequence, half, 3);
            l.out[0] = output(rows, (heads + 2 * kv_heads) * 2 * half);
            check_launch(state, &l, (accuracy){.relative = 1, .spread = 2}); /* the difference of two products */
        }
}

typedef struct attention_shape {
    int64_t sequences, sequence, heads, kv_heads, head_width;
} attention_shape;

static launch attention_launch(const attention_shape *s, bool causal) {
    attributes a = {.sequence = s->sequence,
                    .heads = s->heads,
                    .kv_heads = s->kv_heads,
                    .head_width = s->head_width,
                    .causal = causal,
                    .scale = 1 / sqrt((double)s->head_width)};
    int64_t rows = s->sequences * s->sequence;
    launch l = {.kind = OPERATION_ATTENTION, .attributes = a};
    l.in[0] = operand_random(DTYPE_F32, rows, (s->heads + 2 * s->kv_heads) * s->head_width, 2, 1);
    l.out[0] = output(rows, s->heads * s->head_width);
    l.out[1] = output(rows, s->heads);
    return l;
}

static const attention_shape attention_shapes[] = {
    {2, 1, 1, 1, 1},   {1, 2, 2, 1, 5},   {3, 15, 2, 2, 16},  {1, 16, 4, 2, 17},  {2, 17, 3, 1, 8},   {1, 63, 2, 2, 64},
    {2, 64, 2, 1, 33}, {1, 65, 3, 3, 15}, {1, 127, 2, 1, 31}, {1, 129, 1, 1, 65}, {1, 257, 4, 2, 32},
};
enum { ATTENTION_SHAPES = sizeof attention_shapes / sizeof *attention_shapes };

/* A score is a sum of head_width products, whose rounding exp passes on to every sum over the sequence; in the backward
 * pass it comes in twice, through the scores and through dout v. */
static accuracy attention_accuracy(const attention_shape *s, int passes) {
    return (accuracy){.relative = 4, .spread = passes * (4 + 2 * sqrt((double)s->head_width))};
}

static void attention(void **state) {
    for (int s = 0; s < ATTENTION_SHAPES; s++)
        for (int causal = 0; causal < 2; causal++) {
            launch l = attention_launch(&attention_shapes[s], causal != 0);
            check_launch(state, &l, attention_accuracy(&attention_shapes[s], 1));
        }
}

static void attention_backward(void **state) {
    for (int s = 0; s < ATTENTION_SHAPES; s++)
        for (int causal = 0; causal < 2; causal++) {
            launch forward = attention_launch(&attention_shapes[s], causal != 0);
            reference_launch(&forward);
            launch l = {.kind = OPERATION_ATTENTION_BACKWARD, .attributes = forward.attributes};
            l.in[0] = floats(forward.out[0].shape[0], forward.out[0].shape[1], 2);
            l.in[1] = forward.in[0], l.in[2] = forward.out[0], l.in[3] = forward.out[1];
            l.out[0] = output(forward.in[0].shape[0], forward.in[0].shape[1]);
            check_launch(state, &l, attention_accuracy(&attention_shapes[s], 2));
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
 * is almost 0 its double reference, too, is only what is left of 1 - 1: the spread of 1e-6. */
static const accuracy activation_accuracy = {.relative = 40, .spread = 1e-6};

/* 1 - s has an absolute error of a roundoff where the sigmoid s is near 1, times x (2u)' = 20 for |x| = 4. */
static const accuracy gelu_backward_accuracy = {.relative = 8, .absolute = 24};

static void gelu(void **state) {
    for (int s = 0; s < SIZE_COUNT; s++) {
        int64_t rows = s == 0 ? 17000 : 3;
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
        int64_t rows = 35;
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
static const accuracy cross_entropy_accuracy = {.relative = 16, .spread = 1};

static void cross_entropy(void **state) {
    const int64_t vocabularies[] = {1, 2, 15, 17, 64, 257, 511, 512, 513, 1025, 50257};
    for (int v = 0; v < 11; v++)
        for (int gradient = 0; gradient < 2; gradient++) {
            launch l = cross_entropy_launch(vocabularies[v] > 2000 ? 2 : 5, vocabularies[v], gradient != 0);
            if (l.in[1].shape[0] > 2)
                operand_set(&l.in[1], 2, -1); /* not counted */
            check_launch(state, &l, cross_entropy_accuracy);
        }
}

/* Logits that are masked, that underflow, and whose largest comes first, last or in between. */
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
        check_launch(state, &l, (accuracy){.relative = 100, .spread = 1}); /* logits up to 87 below the largest */
    }
    launch l = cross_entropy_launch(1, 1500, true);
    operand_set(&l.in[0], 1234, NAN);
    check_launch(state, &l, cross_entropy_accuracy);
}

static void elementwise(void **state) {
    for (int s = 0; s < SIZE_COUNT; s++)
        for (int64_t rows = 1; rows <= 200; rows += 199) {
            launch add = {.kind = OPERATION_ADD, .in = {floats(rows, sizes[s], 1), floats(rows, sizes[s], 2)}};
            add.out[0] = output(rows, sizes[s]);
            check_launch(state, &add, rounded_once);
            launch fill = {.kind = OPERATION_FILL, .attributes = {.value = 0.1}, .out = {output(rows, sizes[s])}};
            check_launch(state, &fill, rounded_once);
        }
}

/* 32-bit patterns: all that 16 bits widen to, and those around where rounding decides. */
static operand patterns(dtype type) {
    enum { HALVES = 1 << 16, AROUND = 5 };
    static const uint32_t last_bits[AROUND] = {0, 0x0fff, 0x1000, 0x7fff, 0x8001};
    operand o = operand_make(type, type == DTYPE_F32 ? HALVES * AROUND + 3 : HALVES + 3, 1);
    for (int64_t i = 0; i < operand_count(&o); i++) {
        const uint16_t half = (uint16_t)i;
        const uint32_t bits = (uint32_t)half << 16 | last_bits[i / HALVES % AROUND];
        if (type == DTYPE_F32)
            memcpy((char *)o.data + 4 * i, &bits, 4);
        else
            memcpy((char *)o.data + 2 * i, &half, 2);
    }
    return o;
}

static float element(const operand *o, int64_t i) {
    const uint16_t *half = o->data;
    return o->type == DTYPE_BF16  ? float_from_bf16(half[i])
           : o->type == DTYPE_F16 ? float_from_f16(half[i])
                                  : ((const float *)o->data)[i];
}

static bool holds(const operand *o, int64_t i, float value) {
    const uint16_t half = o->type == DTYPE_BF16 ? bf16_from_float(value) : f16_from_float(value);
    const void *bits = o->type == DTYPE_F32 ? (const void *)&value : (const void *)&half;
    const size_t size = (size_t)dtype_bytes(o->type);
    return memcmp((const char *)o->data + i * (int64_t)size, bits, size) == 0;
}

/* Exact, NaN included: the bits that half.h gives. */
static void cast(void **state) {
    const kernels *k = *state;
    const dtype storages[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    for (int pair = 0; pair < 9; pair++) {
        launch l = {.kind = OPERATION_CAST, .in = {patterns(storages[pair / 3])}};
        const int64_t count = operand_count(&l.in[0]);
        for (int i = 0; i < k->table_count; i++)
            for (int t = 0; t < THREADS; t++) {
                l.out[0] = operand_make(storages[pair % 3], count, 1);
                run_kernel(cpu_kernel_for(&k->tables[i], &l), k->pools[t], &l);
                for (int64_t j = 0; j < count; j++)
                    if (!holds(&l.out[0], j, element(&l.in[0], j)))
                        fail_msg("cast of %s from %s to %s: %g becomes %g", k->tables[i].isa, dtype_name(l.in[0].type),
                                 dtype_name(l.out[0].type), (double)element(&l.in[0], j),
                                 (double)element(&l.out[0], j));
                operand_release(&l.out[0]);
            }
        operand_release(&l.in[0]);
    }
}

/* In double: the order of a sum of n changes its last bits. */
static void sum(void **state) {
    for (int s = 0; s < SIZE_COUNT; s++) {
        launch l = {.kind = OPERATION_SUM, .in = {floats(sizes[s], 1, 1)}, .out = {operand_make(DTYPE_F64, 1, 1)}};
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
    attributes a = {.segments = segments, .segment_count = SEGMENTS, .granule = GRANULE};
    launch l = {.kind = OPERATION_GRANULE_NORM, .attributes = a, .in = {shard(1)}};
    l.out[0] = operand_random(DTYPE_F64, GRANULES, 1, 1, 2);
    check_launch(state, &l, (accuracy){.relative = 512});
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

static void step_result(void **state) {
    const double clips[] = {0, 0.1, 100};
    for (int c = 0; c < 3; c++) {
        launch l = step_result_launch(clips[c]);
        check_launch(state, &l, (accuracy){.relative = 4});
    }
    const int64_t broken[] = {0, 9, 11, 13}; /* squares of unit 0; nobody's (not read); of unit 2; a loss */
    for (int b = 0; b < 4; b++)
        for (int infinite = 0; infinite < 2; infinite++) {
            launch l = step_result_launch(1);
            operand_set(&l.in[0], broken[b], infinite ? INFINITY : NAN);
            check_launch(state, &l, (accuracy){.relative = 4});
        }
    launch l = step_result_launch(1); /* of two broken units the first is named */
    operand_set(&l.in[0], 7, NAN);
    operand_set(&l.in[0], 11, INFINITY);
    check_launch(state, &l, (accuracy){.relative = 4});
}

/* What dynamic scaling does with each kind of step, and that a constant scale stays. */
static void loss_scale(void **state) {
    static const struct {
        double scale, good_steps;
        int64_t interval;
        double square, loss; /* that replace one */
        double scale_after, good_after, overflow;
    } cases[] = {
        {65536, 0, 2000, 1, 1, 65536, 1, 0},
        {65536, 1999, 2000, 1, 1, 131072, 0, 0},
        {65536, 1999, 2000, INFINITY, 1, 32768, 0, 1},
        {65536, 7, 2000, NAN, 1, 32768, 0, 1},
        {2, 7, 2000, INFINITY, 1, 1, 0, 1},
        {1, 7, 2000, INFINITY, 1, 1, 0, 0},
        {1, 1999, 2000, 1, 1, 2, 0, 0},
        {65536, 7, 2000, 1, NAN, 65536, 0, 0},
        {65536, 7, 2000, NAN, NAN, 65536, 0, 0},
        {1000, 0, 0, 1, 1, 1000, 0, 0},
        {1000, 0, 0, INFINITY, 1, 1000, 0, 0},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        launch l = step_result_launch(0.1);
        const double scale[LOSS_SCALE_COUNT] = {cases[c].scale, cases[c].good_steps};
        l.out[2] = operand_of_doubles(scale, LOSS_SCALE_COUNT);
        l.attributes.loss_scale_interval = cases[c].interval;
        operand_set(&l.in[0], 0, cases[c].square);
        operand_set(&l.in[0], 13, cases[c].loss);
        launch done = launch_clone(&l, DTYPE_F64, false);
        reference_launch(&done);
        assert_true(operand_get(&done.out[2], LOSS_SCALE) == cases[c].scale_after);
        assert_true(operand_get(&done.out[2], LOSS_SCALE_GOOD_STEPS) == cases[c].good_after);
        assert_true(operand_get(&done.out[0], RESULT_OVERFLOW) == cases[c].overflow);
        assert_true(operand_get(&done.out[0], RESULT_LOSS_SCALE) == cases[c].scale);
        const bool good = isfinite(cases[c].square) && isfinite(cases[c].loss);
        assert_true(operand_get(&done.out[0], RESULT_BAD) == (good ? 0 : 1));
        assert_true(operand_get(&done.out[1], 0) == (good ? 42 : 41));
        launch_release(&done);
        check_launch(state, &l, (accuracy){.relative = 4});
    }
}

/* Scaling by a power of two changes nothing but the factor for the stored gradients. */
static void loss_scale_is_taken_out(void **state) {
    (void)state;
    launch plain = step_result_launch(0.1), scaled = step_result_launch(0.1);
    const double scale[LOSS_SCALE_COUNT] = {[LOSS_SCALE] = 4096};
    scaled.out[2] = operand_of_doubles(scale, LOSS_SCALE_COUNT);
    for (int64_t i = 0; i < 14; i++) /* squares, not the losses in columns 5 and 6 */
        if (i % 7 < 5)
            operand_set(&scaled.in[0], i, operand_get(&scaled.in[0], i) * 4096 * 4096);
    reference_launch(&plain);
    reference_launch(&scaled);
    assert_true(operand_get(&scaled.out[0], RESULT_LOSS) == operand_get(&plain.out[0], RESULT_LOSS));
    assert_true(operand_get(&scaled.out[0], RESULT_NORM) == operand_get(&plain.out[0], RESULT_NORM));
    assert_true(operand_get(&scaled.out[0], RESULT_CLIP) * 4096 == operand_get(&plain.out[0], RESULT_CLIP));
    launch_release(&plain);
    launch_release(&scaled);
}

/* Gradient, moments and master are about 1 and the moments' own roundings come before the division. */
static void adamw(void **state) {
    for (int bad = 0; bad < 2; bad++) {
        attributes a = {.segments = segments,
                        .segment_count = SEGMENTS,
                        .beta_first = 0.9,
                        .beta_second = 0.95,
                        .epsilon = 1e-8,
                        .weight_decay = 0.1};
        const double scalars[SCALAR_COUNT] = {[SCALAR_LEARNING_RATE] = 0.01}, count = 3;
        double result[RESULT_COUNT] = {[RESULT_CLIP] = 0.3, [RESULT_BAD] = bad};
        launch l = {.kind = OPERATION_ADAMW, .attributes = a, .in = {shard(1)}};
        l.in[1] = operand_of_doubles(scalars, SCALAR_COUNT);
        l.in[2] = operand_of_doubles(result, RESULT_COUNT);
        l.in[3] = operand_of_doubles(&count, 1);
        for (int o = 0; o < 3; o++)
            l.out[o] = shard(2 + (uint64_t)o);
        for (int64_t i = 0; i < GRANULE * GRANULES; i++)
            operand_set(&l.out[2], i, fabs(operand_get(&l.out[2], i)));
        check_launch(state, &l, (accuracy){.relative = 4, .spread = 1});
    }
}

static int open_kernels(void **state) {
    static kernels k;
    k.tables = processor_kernels(&k.table_count);
    for (int i = 0; i < k.table_count; i++)
        print_message("testing %s\n", k.tables[i].isa);
    if (k.table_count < 3)
        print_message("this processor cannot execute the other instruction sets: not tested\n");
    error e = {0};
    for (int t = 0; t < THREADS; t++)
        if (!pool_create(t + 1, NULL, &k.pools[t], &e))
            return -1;
    *state = &k;
    return 0;
}

static int close_kernels(void **state) {
    const kernels *k = *state;
    for (int t = 0; t < THREADS; t++)
        pool_destroy(k->pools[t]);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embedding),
        cmocka_unit_test(embedding_backward),
        cmocka_unit_test(position_backward),
        cmocka_unit_test(norm),
        cmocka_unit_test(norm_backward),
        cmocka_unit_test(matmul),
        cmocka_unit_test(column_sum),
        cmocka_unit_test(rope),
        cmocka_unit_test(attention),
        cmocka_unit_test(attention_backward),
        cmocka_unit_test(gelu),
        cmocka_unit_test(swiglu),
        cmocka_unit_test(cross_entropy),
        cmocka_unit_test(cross_entropy_extremes),
        cmocka_unit_test(elementwise),
        cmocka_unit_test(cast),
        cmocka_unit_test(sum),
        cmocka_unit_test(granule_norm),
        cmocka_unit_test(step_result),
        cmocka_unit_test(loss_scale),
        cmocka_unit_test(loss_scale_is_taken_out),
        cmocka_unit_test(adamw),
        cmocka_unit_test(every_computing_kind_has_a_kernel),
    };
    return cmocka_run_group_tests(tests, open_kernels, close_kernels);
}
