/* Barriers of the CUDA kernels that are missing: each __syncthreads, __syncwarp and copy_async_wait of the sources is
 * left out in turn, in small launches that come by it, under up to SEEDS seeds, until tests/simcuda reports something
 * or a bit of the result differs. One that is not missed is not needed, or not tested: the test fails and names it. So
 * it does for one that no launch comes by.
 *
 * A kernel that loops over its items with the grid as stride is also run with fewer blocks than items, without which
 * the barriers at the end of an item, for the next, would have nothing to do. */
#include "cuda/simulated/launches.h"
#include "engine/checked.h"
#include "engine/device/reference/reference.h"
#include "engine/device/update.h"
#include "engine/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEEDS = 20 };

/* ---- launches ---- */

static operand floats(int64_t rows, int64_t columns, uint64_t stream) {
    return operand_random(DTYPE_F32, rows, columns, 1, stream);
}

static operand positive_doubles(int64_t rows, int64_t columns) {
    operand o = operand_random(DTYPE_F64, rows, columns, 1, 1);
    for (int64_t i = 0; i < operand_count(&o); i++)
        operand_set(&o, i, fabs(operand_get(&o, i)));
    return o;
}

/* Runs of a token over several pieces of 32. */
static launch embedding_backward(void) {
    launch l = {.kind = OPERATION_EMBEDDING_BACKWARD};
    l.in[0] = floats(200, 70, 1);
    l.in[1] = operand_random_integers(200, 3, 2);
    l.in[2] = operand_order(&l.in[1]);
    l.out[0] = floats(5, 70, 3);
    return l;
}

static launch norm(int64_t rows, int64_t width) {
    launch l = {.kind = OPERATION_NORM, .attributes = {.norm = NORM_LAYER, .epsilon = 1e-5}};
    l.in[0] = floats(rows, width, 1);
    l.in[2] = floats(width, 1, 2), l.in[3] = floats(width, 1, 3);
    l.out[0] = floats(rows, width, 4);
    l.out[2] = floats(rows, 2, 5);
    return l;
}

static launch norm_backward(int64_t rows, int64_t width) {
    launch forward = norm(rows, width), l = {.kind = OPERATION_NORM_BACKWARD, .attributes = forward.attributes};
    reference_launch(&forward);
    l.in[0] = floats(rows, width, 6);
    l.in[2] = forward.in[0], l.in[3] = forward.out[2], l.in[4] = forward.in[2];
    l.out[0] = floats(rows, width, 7);
    l.out[1] = floats(width, 1, 8), l.out[2] = floats(width, 1, 9);
    operand_release(&forward.in[3]);
    operand_release(&forward.out[0]);
    return l;
}

/* Rows that several warps share, and several rows to a block. */
static launch norm_of_wide_rows(void) {
    return norm(5, 1200);
}
static launch norm_of_narrow_rows(void) {
    return norm(37, 64);
}
static launch norm_backward_of_wide_rows(void) {
    return norm_backward(5, 1200);
}
static launch norm_backward_of_narrow_rows(void) {
    return norm_backward(37, 64);
}

static launch column_sum(void) {
    return (launch){.kind = OPERATION_COLUMN_SUM, .in = {floats(200, 70, 1)}, .out = {floats(70, 1, 2)}};
}

static launch rope(void) {
    launch l = {.kind = OPERATION_ROPE, .attributes = {.sequence = 5, .heads = 2, .kv_heads = 1, .head_width = 80}};
    l.in[0] = floats(10, 320, 1);
    l.in[1] = floats(5, 40, 2), l.in[2] = floats(5, 40, 3);
    l.out[0] = floats(10, 320, 4);
    return l;
}

static launch cross_entropy(void) {
    const double scalars[SCALAR_COUNT] = {[SCALAR_GRADIENT_SCALE] = 0.37};
    launch l = {.kind = OPERATION_CROSS_ENTROPY, .in = {floats(4, 1025, 1), operand_random_integers(4, 1025, 2)}};
    l.in[2] = operand_of_doubles(scalars, SCALAR_COUNT);
    l.out[0] = floats(4, 1, 3);
    l.out[1] = floats(4, 1025, 4);
    return l;
}

static launch sum(void) {
    return (launch){.kind = OPERATION_SUM, .in = {floats(5000, 1, 1)}, .out = {operand_make(DTYPE_F64, 1, 1)}};
}

/* Granules with several segments and with none. */
static launch granule_norm(void) {
    static const segment segments[] = {{0, 100, false}, {128, 300, true}, {1600, 900, true}};
    launch l = {.kind = OPERATION_GRANULE_NORM, .in = {floats(2560, 1, 1)}, .out = {operand_make(DTYPE_F64, 5, 1)}};
    l.attributes = (attributes){.segments = segments, .segment_count = 3, .granule = 512};
    return l;
}

/* More granules and passes than the block has threads. */
static launch step_result(void) {
    static const granule_columns columns[] = {{700, 350, 0}, {259, 130, 350}};
    const double scalars[SCALAR_COUNT] = {[SCALAR_GRADIENT_SCALE] = 0.125};
    launch l = {.kind = OPERATION_STEP_RESULT, .in = {positive_doubles(2, 780)}};
    l.attributes = (attributes){.columns = columns, .column_count = 2, .loss_column = 480, .passes = 300, .clip = 0.5};
    l.in[1] = operand_of_doubles(scalars, SCALAR_COUNT);
    l.out[0] = operand_make(DTYPE_F64, RESULT_COUNT, 1), l.out[1] = operand_make(DTYPE_F64, 1, 1);
    l.accumulate = operation_signature_of(l.kind)->accumulates;
    return l;
}

/* A shard of several tiles. */
static launch adamw(void) {
    static const segment segments[] = {{0, 4100, true}, {4160, 30, false}, {4224, 9000, true}};
    const double scalars[SCALAR_COUNT] = {[SCALAR_LEARNING_RATE] = 0.01}, count = 3;
    const double result[RESULT_COUNT] = {[RESULT_CLIP] = 0.3};
    launch l = {.kind = OPERATION_ADAMW, .in = {floats(13300, 1, 1)}};
    l.attributes = (attributes){.segments = segments,
                                .segment_count = 3,
                                .beta_first = 0.9,
                                .beta_second = 0.95,
                                .epsilon = 1e-8,
                                .weight_decay = 0.1};
    l.in[1] = operand_of_doubles(scalars, SCALAR_COUNT);
    l.in[2] = operand_of_doubles(result, RESULT_COUNT);
    l.in[3] = operand_of_doubles(&count, 1);
    for (int o = 0; o < 3; o++)
        l.out[o] = floats(13300, 1, 2 + (uint64_t)o);
    l.accumulate = operation_signature_of(l.kind)->accumulates;
    return l;
}

/* Two tiles of queries and more of keys, and two query heads to a key head. */
static launch attention(void) {
    enum { LENGTH = 70, HEADS = 2, HEAD = 16 };
    launch l = {.kind = OPERATION_ATTENTION,
                .attributes = {.sequence = LENGTH, .heads = HEADS, .kv_heads = 1, .head_width = HEAD, .scale = 0.25}};
    l.in[0] = floats(LENGTH, (HEADS + 2) * HEAD, 1);
    l.out[0] = floats(LENGTH, HEADS * HEAD, 2);
    l.out[1] = floats(LENGTH, HEADS, 3);
    return l;
}

static launch attention_backward(void) {
    launch forward = attention(), l = {.kind = OPERATION_ATTENTION_BACKWARD, .attributes = forward.attributes};
    reference_launch(&forward);
    l.in[0] = floats(forward.out[0].shape[0], forward.out[0].shape[1], 4);
    l.in[1] = forward.in[0], l.in[2] = forward.out[0], l.in[3] = forward.out[1];
    l.out[0] = floats(forward.in[0].shape[0], forward.in[0].shape[1], 5);
    return l;
}

typedef struct subject {
    launch (*make)(void);
    unsigned blocks; /* at most; 0: as many as the kernel wants */
} subject;

static const subject subjects[] = {
    {embedding_backward, 2},
    {norm_of_wide_rows, 2},
    {norm_of_narrow_rows, 2},
    {norm_backward_of_wide_rows, 0},
    {norm_backward_of_narrow_rows, 0},
    {column_sum, 2},
    {rope, 2},
    {cross_entropy, 2},
    {sum, 0},
    {granule_norm, 1},
    {step_result, 0},
    {adamw, 2},
    {attention, 0},
    {attention_backward, 0},
};
enum { SUBJECTS = sizeof subjects / sizeof *subjects };

/* ---- the barriers of the sources ---- */

enum { BARRIER_KINDS = 3 };
static const char *const kinds[BARRIER_KINDS] = {"__syncthreads", "__syncwarp", "copy_async_wait"};

typedef struct barrier {
    char file[256];
    int line, kind;
    bool reached[SUBJECTS];
    int seed; /* that showed its absence; -1: none */
} barrier;

typedef struct barriers {
    barrier *list;
    size_t count;
} barriers;

/* -1: the line has none. Comments begin and end on lines of their own, or stand behind the code. */
static int kind_on(const char *line) {
    const char *comment = strstr(line, "/*");
    for (int k = 0; k < BARRIER_KINDS; k++) {
        const char *at = strstr(line, kinds[k]);
        if (at != NULL && at[strlen(kinds[k])] == '(' && (comment == NULL || at < comment))
            return k;
    }
    return -1;
}

static void read_source(const char *name, barriers *all) {
    char path[1024], line[512];
    snprintf(path, sizeof path, "%s/%s", TEST_KERNELS, name);
    FILE *f = fopen(path, "r");
    check(f != NULL, "cannot read %s", path);
    for (int number = 1; fgets(line, sizeof line, f) != NULL; number++) {
        const int kind = kind_on(line);
        if (kind < 0)
            continue;
        all->list = memory_grow(all->list, all->count + 1, sizeof *all->list);
        barrier *b = &all->list[all->count++];
        *b = (barrier){.line = number, .kind = kind, .seed = -1};
        snprintf(b->file, sizeof b->file, "%s", name);
    }
    fclose(f);
}

static int by_place(const void *a, const void *b) {
    const barrier *x = a, *y = b;
    const int files = strcmp(x->file, y->file);
    return files != 0 ? files : x->line - y->line;
}

static barriers read_sources(void) {
    barriers all = {0};
    DIR *folder = opendir(TEST_KERNELS);
    check(folder != NULL, "cannot read %s", TEST_KERNELS);
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (strstr(entry->d_name, ".cu") != NULL)
            read_source(entry->d_name, &all);
    closedir(folder);
    check(all.count > 0, "no barrier in %s", TEST_KERNELS);
    qsort(all.list, all.count, sizeof *all.list, by_place);
    return all;
}

static bool is_at(const barrier *b, const char *file, int line) {
    const char *slash = strrchr(file, '/');
    return b->line == line && strcmp(b->file, slash == NULL ? file : slash + 1) == 0;
}

/* ---- runs ---- */

typedef struct recorder {
    const barriers *all;
    size_t subject;
} recorder;

static bool record(void *state, const char *file, int line) {
    const recorder *r = state;
    for (size_t i = 0; i < r->all->count; i++)
        if (is_at(&r->all->list[i], file, line)) {
            r->all->list[i].reached[r->subject] = true;
            return true;
        }
    check(false, "%s:%d is a barrier that was not found in the sources", file, line);
    return true;
}

static bool is_another(void *barrier, const char *file, int line) {
    return !is_at(barrier, file, line);
}

typedef struct execution {
    const launch *l;
    launch result;
} execution;

static void execute(void *state) {
    execution *x = state;
    x->result = cuda_launch_run(x->l, (cuda_placement){0});
}

static bool same_bits(const launch *a, const launch *b) {
    bool same = true;
    for (int o = 0; o < OPERATION_OUTPUTS; o++)
        same = same && (a->out[o].data == NULL ||
                        memcmp(a->out[o].data, b->out[o].data,
                               (size_t)(operand_count(&a->out[o]) * dtype_bytes(a->out[o].type))) == 0);
    return same;
}

/* What a launch gives, and each storage's; released by the caller. */
typedef struct baseline {
    launch l, result;
} baseline;

static baseline run_unchanged(size_t s, const barriers *all) {
    baseline b = {.l = subjects[s].make()};
    recorder r = {all, s};
    simcuda_seed(0);
    simcuda_filter_barriers(record, &r);
    simcuda_limit_blocks(subjects[s].blocks);
    b.result = cuda_launch_run(&b.l, (cuda_placement){0});
    launch whole = (simcuda_limit_blocks(0), cuda_launch_run(&b.l, (cuda_placement){0}));
    simcuda_filter_barriers(NULL, NULL);
    assert_true(same_bits(&b.result, &whole)); /* whatever the number of blocks */
    launch_release(&whole);
    return b;
}

/* Whether its absence shows in this launch. */
static bool is_missed(barrier *b, size_t s, const baseline *unchanged, uint64_t seed) {
    char report[1024];
    execution x = {.l = &unchanged->l};
    simcuda_seed(seed);
    simcuda_filter_barriers(is_another, b);
    simcuda_limit_blocks(subjects[s].blocks);
    const bool reported = simcuda_catch(execute, &x, report, sizeof report);
    simcuda_filter_barriers(NULL, NULL);
    simcuda_limit_blocks(0);
    if (reported)
        return true;
    const bool same = same_bits(&x.result, &unchanged->result);
    launch_release(&x.result);
    return !same;
}

static void leave_out(barrier *b, const baseline *unchanged) {
    for (int seed = 0; seed < SEEDS && b->seed < 0; seed++)
        for (size_t s = 0; s < SUBJECTS && b->seed < 0; s++)
            if (b->reached[s] && is_missed(b, s, &unchanged[s], (uint64_t)seed))
                b->seed = seed;
}

static void barriers_of_kernels(void **state) {
    (void)state;
    barriers all = read_sources();
    baseline unchanged[SUBJECTS];
    int found[BARRIER_KINDS] = {0}, of[BARRIER_KINDS] = {0}, failures = 0;
    for (size_t s = 0; s < SUBJECTS; s++)
        unchanged[s] = run_unchanged(s, &all);
    for (size_t i = 0; i < all.count; i++) {
        barrier *b = &all.list[i];
        bool reached = false;
        for (size_t s = 0; s < SUBJECTS; s++)
            reached = reached || b->reached[s];
        leave_out(b, unchanged);
        of[b->kind]++;
        found[b->kind] += b->seed >= 0;
        failures += b->seed < 0;
        if (b->seed < 0)
            print_message("%s:%d: %s is not missed: %s\n", b->file, b->line, kinds[b->kind],
                          reached ? "nothing is reported, and the results are the same" : "no launch comes by it");
    }
    for (int k = 0; k < BARRIER_KINDS; k++)
        print_message("%-16s %d of %d are missed within %d seeds\n", kinds[k], found[k], of[k], SEEDS);
    for (size_t s = 0; s < SUBJECTS; s++) {
        launch_release(&unchanged[s].l);
        launch_release(&unchanged[s].result);
    }
    free(all.list);
    assert_int_equal(failures, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(barriers_of_kernels)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
