#include "support/collective_checks.h"

#include "engine/checked.h"
#include "engine/device/half.h"
#include "engine/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SEED = 7, ALIGNMENT = 256, MOST = 164, STREAMS = 2, GATHERS_MOST = 16 };

/* Around one rank, a cache line, a block of sums, a tile of transfers (2 MiB). */
static const int64_t COUNTS[] = {1, 3, 17, 2049, 70001, 530000};

typedef struct checks {
    world *w;
    int threads, steps;
    collective list[MOST];
    char names[MOST][32];
    int32_t count;
    int64_t bytes;
    char *arena;
} checks;

static int64_t place(checks *c, int64_t bytes) {
    int64_t offset = c->bytes;
    c->bytes += round_up(bytes, ALIGNMENT);
    return offset;
}

static void add(checks *c, collective o, bool in_place) {
    check(c->count < MOST, "too many collectives");
    int64_t part = o.count * dtype_bytes(o.type), whole = part * (o.kind == OPERATION_ALL_REDUCE ? 1 : o.group_size);
    int64_t shard = o.count * dtype_bytes(DTYPE_F32);
    int own = (c->w->rank - o.group_first) / o.group_stride;
    bool gathering = o.kind == OPERATION_ALL_GATHER, scattering = o.kind == OPERATION_REDUCE_SCATTER;
    o.output = in_place && scattering ? 0 : place(c, scattering ? shard : whole);
    o.input = in_place && !scattering ? o.output + (gathering ? own * part : 0) : place(c, gathering ? part : whole);
    if (in_place && scattering)
        o.output = o.input + own * part;
    o.stream = c->count % STREAMS;
    snprintf(c->names[c->count], sizeof c->names[0], "collective %d", c->count);
    o.name = c->names[c->count];
    c->list[c->count++] = o;
}

static int odd_part(int number) {
    while (number % 2 == 0)
        number /= 2;
    return number;
}

static void add_kinds(checks *c, collective o) {
    o.odd = o.group_size;
    o.kind = OPERATION_ALL_GATHER;
    add(c, o, false);
    add(c, o, true);
    o.type = DTYPE_F64;
    add(c, o, false);
    o.type = DTYPE_BF16;
    o.odd = odd_part(o.group_size);
    add(c, o, false);
    o.kind = OPERATION_REDUCE_SCATTER;
    add(c, o, false);
    o.accumulate = true;
    add(c, o, false);
    o.accumulate = false;
    o.kind = OPERATION_ALL_REDUCE;
    add(c, o, true);
    o.odd = o.group_size;
    o.type = DTYPE_F32;
    o.kind = OPERATION_REDUCE_SCATTER;
    add(c, o, false);
    add(c, o, true);
    o.accumulate = true;
    add(c, o, false);
    o.accumulate = false;
    o.kind = OPERATION_ALL_REDUCE;
    add(c, o, false);
    add(c, o, true);
    o.odd = odd_part(o.group_size);
    add(c, o, false);
    o.kind = OPERATION_REDUCE_SCATTER;
    add(c, o, false);
}

static void make_list(checks *c) {
    world *w = c->w;
    for (size_t i = 0; i < sizeof COUNTS / sizeof *COUNTS; i++)
        add_kinds(c, (collective){.type = DTYPE_F32, .count = COUNTS[i], .group_stride = 1, .group_size = w->size});
    if (w->size % 2 != 0)
        return;
    int half = w->size / 2; /* hybrid: pairs of neighbours, and those at the same place of each pair */
    add_kinds(
        c, (collective){
               .type = DTYPE_F32, .count = 1001, .group_first = w->rank / 2 * 2, .group_stride = 1, .group_size = 2});
    add_kinds(c,
              (collective){
                  .type = DTYPE_F32, .count = 999, .group_first = w->rank % 2, .group_stride = 2, .group_size = half});
}

static double rounded(dtype type, double value) {
    return type == DTYPE_BF16 ? (double)float_from_bf16(bf16_from_float((float)value)) : value;
}

/* Element of a rank's input: not a round number, so that another order of summing shows. */
static double value_of(const collective *o, int rank, int step, int32_t index, int64_t element) {
    uint64_t mixed = (uint64_t)(element + 1) * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)(rank * 1000 + index) * 7919;
    mixed = (mixed + (uint64_t)step) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed ^= mixed >> 29;
    return rounded(o->type,
                   (double)(float)((double)(mixed * UINT64_C(0x94d049bb133111eb) >> 11) / 9007199254740992.0 - 0.5));
}

static dtype output_type(const collective *o) {
    return o->kind == OPERATION_REDUCE_SCATTER ? DTYPE_F32 : o->type;
}

static int64_t input_elements(const collective *o) {
    return o->count * (o->kind == OPERATION_REDUCE_SCATTER ? o->group_size : 1);
}

static void store(dtype type, char *base, int64_t element, double value) {
    if (type == DTYPE_F64)
        ((double *)(void *)base)[element] = value;
    else if (type == DTYPE_BF16)
        ((uint16_t *)(void *)base)[element] = bf16_from_float((float)value);
    else
        ((float *)(void *)base)[element] = (float)value;
}

static double load(dtype type, const char *base, int64_t element) {
    if (type == DTYPE_F64)
        return ((const double *)(const void *)base)[element];
    if (type == DTYPE_BF16)
        return (double)float_from_bf16(((const uint16_t *)(const void *)base)[element]);
    return (double)((const float *)(const void *)base)[element];
}

static void fill(checks *c, int32_t index, int step) {
    const collective *o = &c->list[index];
    for (int64_t i = 0; i < input_elements(o); i++)
        store(o->type, c->arena + o->input, i, value_of(o, c->w->rank, step, index, i));
    for (int64_t i = 0; o->accumulate && i < o->count; i++)
        store(output_type(o), c->arena + o->output, i, (double)i);
}

static float sum_of(const collective *o, int32_t index, int step, int64_t element, int first, int members) {
    if (members > o->odd)
        return sum_of(o, index, step, element, first, members / 2) +
               sum_of(o, index, step, element, first + members / 2, members / 2);
    float sum = (float)value_of(o, o->group_first + first * o->group_stride, step, index, element);
    for (int k = first + 1; k < first + members; k++)
        sum += (float)value_of(o, o->group_first + k * o->group_stride, step, index, element);
    return sum;
}

static double sum_in_order(const collective *o, int32_t index, int step, int64_t element) {
    return (double)sum_of(o, index, step, element, 0, o->group_size);
}

static double expected(const checks *c, int32_t index, int step, int64_t element) {
    const collective *o = &c->list[index];
    int own = (c->w->rank - o->group_first) / o->group_stride;
    switch (o->kind) {
    case OPERATION_ALL_GATHER:
        return value_of(o, o->group_first + (int)(element / o->count) * o->group_stride, step, index,
                        element % o->count);
    case OPERATION_ALL_REDUCE:
        return rounded(o->type, sum_in_order(o, index, step, element));
    default: {
        float sum = (float)sum_in_order(o, index, step, own * o->count + element);
        return (double)(o->accumulate ? (float)element + sum : sum);
    }
    }
}

/* The same bits: sums are made in one order, always. */
static bool verify(const checks *c, int32_t index, int step, error *e) {
    const collective *o = &c->list[index];
    int64_t elements = o->count * (o->kind == OPERATION_ALL_GATHER ? o->group_size : 1);
    for (int64_t i = 0; i < elements; i++) {
        double found = load(output_type(o), c->arena + o->output, i), wanted = expected(c, index, step, i);
        if (memcmp(&found, &wanted, sizeof found) != 0)
            return error_set_own(
                e, EXIT_INTERNAL,
                "%s (kind %d, count %lld, group of %d) step %d element %lld: found %.9g, expected %.9g", o->name,
                o->kind, (long long)o->count, o->group_size, step, (long long)i, found, wanted);
    }
    return true;
}

/* Every rank is late in some places. */
static void delay(const checks *c, int step, int32_t index) {
    uint32_t words[4];
    rng_words(SEED, (uint64_t)(step * MOST + index), (uint64_t)c->w->rank, words);
    if (words[0] % 8 == 0)
        usleep(words[1] % 2000);
}

/* Released input may be overwritten at once: what the others got must not change. */
static bool release_and_spoil(checks *c, collectives *opened, int32_t index, error *e) {
    const collective *o = &c->list[index];
    if (!collectives_release(opened, index, 0, e))
        return false;
    int64_t bytes = input_elements(o) * dtype_bytes(o->type);
    int64_t output_bytes =
        o->count * dtype_bytes(output_type(o)) * (o->kind == OPERATION_ALL_GATHER ? o->group_size : 1);
    if (o->input + bytes <= o->output || o->output + output_bytes <= o->input) /* not in place */
        memset(c->arena + o->input, 0xff, (size_t)bytes);
    return true;
}

static bool run_step(checks *c, collectives *opened, int step, error *e) {
    for (int32_t i = 0; i < c->count; i++)
        fill(c, i, step);
    for (int32_t i = 0; i < c->count; i++) {
        uint32_t words[4];
        rng_words(SEED, (uint64_t)step, (uint64_t)i, words); /* the same calls on every rank */
        delay(c, step, i);
        collectives_issue(opened, i);
        int32_t earlier = (int32_t)(words[1] % (uint32_t)(i + 1));
        collectives_poll(opened);
        if (words[0] % 4 == 0 && !collectives_complete(opened, earlier, 0, e))
            return false;
        if (words[0] % 4 == 1 && !release_and_spoil(c, opened, earlier, e))
            return false;
    }
    if (!collectives_finish(opened, e))
        return false;
    for (int32_t i = 0; i < c->count; i++)
        if (!verify(c, i, step, e))
            return false;
    return true;
}

static bool open_device(int threads, device **d, error *e) {
    const device_settings settings = {.threads = threads};
    return device_cpu.open(&settings, d, e);
}

static bool run_checks(checks *c, transport how, error *e) {
    device *d = NULL;
    device_memory memory;
    collectives *opened = NULL;
    make_list(c);
    int64_t workspace = place(c, collectives_host.workspace(c->w, c->list, c->count, how));
    if (!open_device(c->threads, &d, e) || !device_cpu.allocate(d, (size_t)c->bytes, &memory, e))
        return false;
    c->arena = memory.base;
    const collectives_settings settings = {
        .device = d, .arena = &memory, .workspace = workspace, .transport = how, .timeout = 60};
    bool fine = collectives_host.open(c->w, &settings, c->list, c->count, &opened, e);
    for (int step = 1; fine && step <= c->steps; step++)
        fine = run_step(c, opened, step, e);
    if (!fine && opened != NULL)
        collectives_fail(opened, e);
    fine = world_agree(c->w, e);
    if (opened != NULL)
        collectives_close(opened);
    world_barrier(c->w); /* nobody reads this arena any more */
    device_cpu.release(d, &memory);
    device_cpu.close(d);
    return fine;
}

bool collective_checks(world *w, transport how, int threads, int steps, error *e) {
    checks *c = memory_allocate(1, sizeof *c);
    c->w = w;
    c->threads = threads;
    c->steps = steps;
    bool fine = run_checks(c, how, e);
    free(c);
    return fine;
}

bool gathers_open(world *w, transport how, int32_t count, int64_t elements, double timeout, gathers *g, error *e) {
    static const char *const names[GATHERS_MOST] = {"gather 0", "gather 1", "gather 2", "gather 3"};
    collective list[GATHERS_MOST];
    int64_t part = elements * (int64_t)sizeof(float), each = round_up(part * (w->size + 1), ALIGNMENT);
    for (int32_t i = 0; i < count; i++)
        list[i] = (collective){.kind = OPERATION_ALL_GATHER,
                               .group_stride = 1,
                               .group_size = w->size,
                               .type = DTYPE_F32,
                               .count = elements,
                               .input = i * each,
                               .output = i * each + part,
                               .name = names[i]};
    *g = (gathers){0};
    if (!open_device(1, &g->device, e) || !device_cpu.allocate(g->device, (size_t)(count * each), &g->memory, e))
        return false;
    const collectives_settings settings = {
        .device = g->device, .arena = &g->memory, .transport = how, .timeout = timeout};
    return collectives_host.open(w, &settings, list, count, &g->collectives, e);
}

void gathers_close(gathers *g) {
    if (g->collectives != NULL)
        collectives_close(g->collectives);
    device_cpu.release(g->device, &g->memory);
    device_cpu.close(g->device);
}
