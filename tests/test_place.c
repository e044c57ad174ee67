/* Where tensors lie: how near the arena comes to what no packing can undercut, for step programs of published models
 * with all sorts of batches and strategies; that nothing overlaps; that the same program gets the same offsets. */
#include "engine/checked.h"
#include "engine/error.h"
#include "engine/first_fit.h"
#include "engine/lifetime.h"
#include "engine/pack.h"
#include "engine/place.h"
#include "engine/rng.h"
#include "launch/presets.h"
#include "support/small_programs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- programs ---- */

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const int presets[] = {0, 4, 6, 7}; /* gpt2, llama-3.2-1b, llama-3.1-8b, llama-3.1-70b */
static const int64_t sequences[] = {2048, 4096, 8192}, passes[] = {1, 3};
static const int world_sizes[] = {8, 16, 31, 64, 256, 1024};
static const recompute_policy policies[] = {RECOMPUTE_NONE, RECOMPUTE_BLOCK, RECOMPUTE_ATTENTION};

/* Numbers below `limit` that depend on the program's number alone. */
static size_t draw(uint64_t number, uint64_t field, size_t limit) {
    uint32_t words[4];
    rng_words(number, field, 0, words);
    return words[0] % limit;
}

enum { FULL, GRADIENTS, OPTIMIZER, NONE, HYBRID, STRATEGY_COUNT };

static void choose_strategy(small_program *job, size_t strategy) {
    const bool hybrid = strategy == HYBRID && job->ranks % 8 == 0;
    job->group = strategy == NONE ? 1 : hybrid ? 8 : job->ranks;
    job->keep_gathered = strategy == GRADIENTS || strategy == OPTIMIZER;
    job->reduce_last = strategy == OPTIMIZER || strategy == NONE;
}

/* unequal: units of different sizes, or few layers. */
static small_program program_number(uint64_t number, bool unequal) {
    small_program job = {.shape = *preset_shape(presets[draw(number, 0, COUNT(presets))])};
    job.sequence = minimum(sequences[draw(number, 1, COUNT(sequences))], job.shape.context);
    job.micro_batch = 1 + (int64_t)draw(number, 2, 4);
    job.passes = passes[draw(number, 3, COUNT(passes))];
    job.ranks = world_sizes[draw(number, 4, COUNT(world_sizes))];
    job.recompute = policies[draw(number, 5, COUNT(policies))];
    job.prefetch = (int)draw(number, 6, 4);
    choose_strategy(&job, draw(number, 7, STRATEGY_COUNT));
    job.unit_blocks = unequal ? 1 + (int64_t)draw(number, 8, 5) : 1;
    if (unequal && draw(number, 9, 2) == 0)
        job.shape.layers = 1 + (int64_t)draw(number, 10, 12);
    return job;
}

static void describe(const small_program *job) {
    print_message(
        "  %lld layers of width %lld, %d ranks in groups of %d, prefetch %d, %lld passes of %lld x %lld, units "
        "of %lld%s%s, recompute %d\n",
        (long long)job->shape.layers, (long long)job->shape.width, job->ranks, job->group, job->prefetch,
        (long long)job->passes, (long long)job->micro_batch, (long long)job->sequence, (long long)job->unit_blocks,
        job->keep_gathered ? ", kept" : "", job->reduce_last ? ", reduced at the last" : "", (int)job->recompute);
}

/* ---- distance from the bound ---- */

/* What is placed is what comes and goes: persistent tensors are left out everywhere. */
typedef struct distances {
    int programs, above_half, above_two; /* above_half: more than half a percent above the bound; above_two likewise */
    double sum, worst;                   /* of the arena above the bound with held reductions */
    double hold_sum, hold_worst;         /* of that bound above the one in list order */
    int64_t reductions, shortened;
    small_program worst_job, hold_worst_job;
} distances;

static int64_t reductions_of(const program *p) {
    int64_t count = 0;
    for (int32_t i = 0; i < p->operation_count; i++)
        count += p->operations[i].stream == STREAM_REDUCE;
    return count;
}

static void measure(distances *d, const small_program *job) {
    step *s = small_program_build(job);
    const program *p = s->program;
    const double persistent = (double)p->persistent_bytes, held = (double)p->held_bytes - persistent;
    const double above = ((double)p->arena_bytes - persistent) / held - 1;
    const double hold = held / ((double)p->live_bytes - persistent) - 1;
    assert_true(above >= 0 && hold >= 0);
    d->programs++;
    d->above_half += above > 0.005;
    d->above_two += above > 0.02;
    d->sum += above;
    d->hold_sum += hold;
    d->reductions += reductions_of(p);
    d->shortened += p->shortened_holds;
    if (above >= d->worst) {
        d->worst = above;
        d->worst_job = *job;
    }
    if (hold >= d->hold_worst) {
        d->hold_worst = hold;
        d->hold_worst_job = *job;
    }
    step_destroy(s);
}

/* What holding may cost: engine/place gives it up where it would be more. */
static const double HOLD_MOST = 0.10;

static void report(const distances *d) {
    print_message("%d programs: %.3f %% above the bound on average, %.2f %% at worst, %d above 0.5 %%, %d above 2 %%\n",
                  d->programs, 100 * d->sum / d->programs, 100 * d->worst, d->above_half, d->above_two);
    describe(&d->worst_job);
    print_message(
        "holding what is being reduced: %.2f %% on average, %.2f %% at worst; %.2f %% of %lld reductions held "
        "for less\n",
        100 * d->hold_sum / d->programs, 100 * d->hold_worst, 100 * (double)d->shortened / (double)d->reductions,
        (long long)d->reductions);
    describe(&d->hold_worst_job);
    assert_true(d->hold_worst <= HOLD_MOST);
}

static distances measure_drawn(int count, bool unequal) {
    distances d = {0};
    for (int i = 0; i < count; i++) {
        const small_program job = program_number((uint64_t)i, unequal);
        measure(&d, &job);
    }
    report(&d);
    return d;
}

enum { EQUAL_PROGRAMS = 300, UNEQUAL_PROGRAMS = 200 };

static void equal_blocks_come_within_two_percent(void **state) {
    (void)state;
    const distances d = measure_drawn(EQUAL_PROGRAMS, false);
    assert_true(d.worst <= 0.02);
    assert_true(d.above_half <= d.programs / 50);
    assert_true(d.hold_sum <= 0.01 * d.programs);
}

static void other_blocks_come_near(void **state) {
    (void)state;
    const distances d = measure_drawn(UNEQUAL_PROGRAMS, true);
    assert_true(d.above_two <= d.programs / 50);
    assert_true(d.above_half <= d.programs / 20);
}

/* The fewer tokens, the more flat gradients weigh: without a limit, holding them would cost up to half. */
static void few_tokens_come_near(void **state) {
    (void)state;
    distances d = {0};
    for (size_t preset = 1; preset < COUNT(presets); preset++)
        for (int64_t sequence = 256; sequence <= 1024; sequence *= 4)
            for (size_t policy = 0; policy < COUNT(policies); policy++)
                for (int prefetch = 0; prefetch < 2; prefetch++) {
                    small_program job = {.shape = *preset_shape(presets[preset]), .sequence = sequence};
                    job.ranks = job.group = 64;
                    job.passes = job.micro_batch = job.unit_blocks = 1;
                    job.recompute = policies[policy];
                    job.prefetch = prefetch;
                    measure(&d, &job);
                }
    report(&d);
    assert_true(d.worst <= 0.02);
}

/* ---- a budget ---- */

enum { BUDGETS = 12 };

/* Between what the arena needs with holding and without, holding gives way; below, nothing helps. */
static void holding_gives_way_to_a_budget(void **state) {
    (void)state;
    int gave_way = 0;
    for (uint64_t number = 0; number < BUDGETS; number++) {
        const small_program job = program_number(3000 + number, false);
        step *s = small_program_build(&job);
        program *p = s->program;
        const int64_t ample = p->arena_bytes, live = p->live_bytes;
        const int32_t shortened = p->shortened_holds;
        place(p, ample);
        assert_int_equal(p->arena_bytes, ample);
        place(p, live - 1);
        assert_int_equal(p->arena_bytes, ample);
        place(p, live);
        if (p->arena_bytes < ample) {
            const int64_t tight = p->arena_bytes;
            assert_int_equal(p->held_bytes, live);
            assert_true(tight >= live);
            assert_true(p->shortened_holds > shortened);
            place(p, tight);
            assert_int_equal(p->arena_bytes, tight);
            gave_way++;
        }
        step_destroy(s);
    }
    print_message("%d of %d programs fit into less when holding gives way\n", gave_way, BUDGETS);
    assert_true(gave_way > 0);
}

/* ---- nothing overlaps ---- */

static void nothing_overlaps(void **state) {
    (void)state;
    for (uint64_t number = 0; number < 12; number++) {
        const small_program job = program_number(1000 + number, true);
        step *s = small_program_build(&job);
        const program *p = s->program;
        lifetime *lives = lifetimes_of(p);
        for (tensor_id a = 0; a < p->tensor_count; a++)
            for (tensor_id b = 0; b < a; b++) {
                const tensor *x = &p->tensors[a], *y = &p->tensors[b];
                const bool stored = lives[a].storage == a && lives[b].storage == b && lives[a].first != NO_OPERATION &&
                                    lives[b].first != NO_OPERATION;
                const bool together = x->persistent || y->persistent ||
                                      (lives[a].first <= lives[b].last && lives[b].first <= lives[a].last);
                if (stored && together && x->address < y->address + lives[b].bytes &&
                    y->address < x->address + lives[a].bytes)
                    fail_msg("program %llu: %s lies on %s", (unsigned long long)number, x->name, y->name);
            }
        free(lives);
        step_destroy(s);
    }
}

/* ---- first fit, against looking at everything ---- */

enum { BLOCKS = 600, POSITIONS = 1000 };

static block random_block(uint64_t seed, uint64_t number) {
    const int32_t first = (int32_t)draw(seed, 3 * number, POSITIONS);
    const size_t longest = draw(seed, 3 * number + 1, 4) == 0 ? POSITIONS : 20;
    const int32_t life = (int32_t)draw(seed, 3 * number + 1, longest);
    return (block){.first = first,
                   .last = (int32_t)minimum(first + life, POSITIONS - 1),
                   .bytes = 1 + (int64_t)draw(seed, 3 * number + 2, 50)};
}

static bool is_free(const block *blocks, int count, const block *b, int64_t offset) {
    for (int i = 0; i < count; i++)
        if (blocks[i].first <= b->last && b->first <= blocks[i].last && blocks[i].address < offset + b->bytes &&
            offset < blocks[i].address + blocks[i].bytes)
            return false;
    return true;
}

static int64_t lowest_by_trying(const block *blocks, int count, const block *b) {
    int64_t lowest = is_free(blocks, count, b, 0) ? 0 : INT64_MAX;
    for (int i = 0; i < count; i++) {
        const int64_t end = blocks[i].address + blocks[i].bytes;
        if (end < lowest && is_free(blocks, count, b, end))
            lowest = end;
    }
    return lowest;
}

/* At the limit or right below another block; the lowest when there is no room. */
static int64_t highest_by_trying(const block *blocks, int count, const block *b, int64_t limit) {
    int64_t highest = limit >= b->bytes && is_free(blocks, count, b, limit - b->bytes) ? limit - b->bytes : -1;
    for (int i = 0; i < count; i++) {
        const int64_t offset = blocks[i].address - b->bytes;
        if (offset > highest && offset + b->bytes <= limit && is_free(blocks, count, b, offset))
            highest = offset;
    }
    return highest >= 0 ? highest : lowest_by_trying(blocks, count, b);
}

enum { UPWARDS, DOWNWARDS, DIRECTIONS };

static void first_fit_finds_the_outermost_gap(void **state) {
    (void)state;
    const int64_t limit = 600; /* so that room runs out */
    first_fit *f = first_fit_create(POSITIONS);
    for (uint64_t seed = 0; seed < 8; seed++) {
        block blocks[BLOCKS];
        first_fit_clear(f);
        for (int i = 0; i < BLOCKS; i++) {
            block *b = &blocks[i];
            *b = random_block(seed, (uint64_t)i);
            if (draw(seed + 100, (uint64_t)i, DIRECTIONS) == UPWARDS) {
                b->address = first_fit_low(f, b->first, b->last, b->bytes);
                assert_int_equal(b->address, lowest_by_trying(blocks, i, b));
            } else {
                b->address = first_fit_high(f, b->first, b->last, b->bytes, limit);
                assert_int_equal(b->address, highest_by_trying(blocks, i, b, limit));
            }
        }
    }
    first_fit_destroy(f);
}

static void one_position_is_enough(void **state) {
    (void)state;
    first_fit *f = first_fit_create(1);
    assert_int_equal(first_fit_low(f, 0, 0, 7), 0);
    assert_int_equal(first_fit_low(f, 0, 0, 5), 7);
    assert_int_equal(first_fit_high(f, 0, 0, 3, 100), 97);
    first_fit_destroy(f);
}

/* ---- the same offsets again ---- */

static void placement_repeats(void **state) {
    (void)state;
    for (uint64_t number = 0; number < 8; number++) {
        const small_program job = program_number(2000 + number, true);
        step *a = small_program_build(&job), *b = small_program_build(&job);
        assert_int_equal(a->program->tensor_count, b->program->tensor_count);
        for (tensor_id t = 0; t < a->program->tensor_count; t++)
            assert_int_equal(a->program->tensors[t].address, b->program->tensors[t].address);
        step_destroy(a);
        step_destroy(b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_blocks_come_within_two_percent),
        cmocka_unit_test(other_blocks_come_near),
        cmocka_unit_test(few_tokens_come_near),
        cmocka_unit_test(holding_gives_way_to_a_budget),
        cmocka_unit_test(nothing_overlaps),
        cmocka_unit_test(first_fit_finds_the_outermost_gap),
        cmocka_unit_test(one_position_is_enough),
        cmocka_unit_test(placement_repeats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
