#include "support/small_training.h"

#include "comm/loopback.h"
#include "engine/checked.h"
#include "engine/device/update.h"
#include "launch/plan.h"
#include "launch/token_order.h"
#include "launch/trace_file.h"
#include "launch/weights.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

model_shape small_shape(model_family family, bool tied) {
    const bool llama = family == FAMILY_LLAMA;
    return (model_shape){.family = family,
                         .layers = 3,
                         .width = 20,
                         .heads = 4,
                         .kv_heads = llama ? 2 : 4,
                         .head_width = llama ? 6 : 5,
                         .feed_forward = 28,
                         .vocabulary = 53,
                         .context = 24,
                         .tied = tied,
                         .norm_epsilon = 1e-5,
                         .rope_theta = 10000,
                         .initialisation = 0.1};
}

typedef struct member {
    const small_training *training;
    world world;
    device *device;
    device_memory arena;
    plan *plan;
    run *train, *validation;
    trace *trace;
    small_result *result; /* written by rank 0; weights by every rank, its own part */
} member;

static config config_of(const small_training *t) {
    config c;
    memset(&c, 0, sizeof c);
    c.train.global_batch = t->global_batch;
    c.train.micro_batch = t->micro_batch;
    c.train.sequence = t->sequence;
    c.optimizer.betas[0] = 0.9;
    c.optimizer.betas[1] = 0.95;
    c.optimizer.epsilon = 1e-8;
    c.optimizer.weight_decay = 0.1;
    c.optimizer.clip = 1;
    c.shard.group = t->group;
    c.shard.prefetch = t->prefetch;
    c.shard.keep_gathered = t->keep_gathered ? CONFIG_YES : CONFIG_NO;
    c.shard.reduce_every = t->reduce_each ? CONFIG_EACH : CONFIG_LAST;
    c.shard.reduce = t->reproducible ? CONFIG_REPRODUCIBLE : CONFIG_FAST;
    c.shard.recompute = t->recompute;
    c.shard.memory = t->memory;
    c.shard.unit = t->unit_blocks;
    c.shard.timeout = 60;
    c.precision.compute = t->compute;
    c.precision.communicate = t->communicate;
    return c;
}

static int32_t token(int64_t position, int64_t vocabulary) {
    const uint64_t x = (uint64_t)position * UINT64_C(0x9E3779B97F4A7C15);
    const double u = (double)(x >> 11) * 0x1p-53;
    return (int32_t)(u * u * (double)vocabulary);
}

/* Fills the batch of a step: sequence number n of the whole run starts at token n * sequence. */
static void fill(member *m, run *r, int64_t number) {
    const small_training *t = m->training;
    const int64_t tokens = t->micro_batch * t->sequence;
    size_t bytes;
    int32_t *input = run_host(r, HOST_TOKENS, &bytes), *target = run_host(r, HOST_TARGETS, &bytes);
    int32_t *order = run_host(r, HOST_ORDER, &bytes);
    double *scalars = run_host(r, HOST_SCALARS, &bytes);
    int32_t *scratch = memory_allocate((size_t)tokens, sizeof *scratch);
    for (int64_t pass = 0; pass < m->plan->passes; pass++) {
        const int64_t micro = pass * t->ranks + m->world.rank;
        const int64_t first = (number * t->global_batch + micro * t->micro_batch) * t->sequence;
        for (int64_t i = 0; i < tokens; i++) {
            input[pass * tokens + i] = token(first + i, t->shape.vocabulary);
            target[pass * tokens + i] = token(first + i + 1, t->shape.vocabulary);
        }
        if (order != NULL)
            token_order(input + pass * tokens, tokens, t->shape.vocabulary, order + pass * tokens, scratch);
    }
    free(scratch);
    scalars[SCALAR_GRADIENT_SCALE] = 1 / (double)(t->global_batch * t->sequence);
    scalars[SCALAR_LEARNING_RATE] = 1e-2;
}

static void keep_weights(member *m) {
    const parameter_list *list = &m->plan->model->list;
    int64_t start = 0;
    if (m->world.rank >= m->training->group) /* a replica holds the same */
        return;
    for (int32_t i = 0; i < list->count; i++) {
        const flat_slice slice = flat_slice_of(m->plan->layout, list, m->plan->layout->group_rank, i);
        run_read(m->train, m->plan->train->master[list->items[i].unit], slice.at * 4,
                 m->result->weights + start + slice.first, slice.count * 4);
        start += parameter_elements(&list->items[i]);
    }
}

static void step_and_report(member *m, int64_t number) {
    error e = {0};
    size_t bytes;
    step_times *times = trace_step(m->trace, number + 1);
    fill(m, m->train, number);
    check(times == NULL ? run_step(m->train, &e) : run_step_timed(m->train, times, &e), "%s", e.message);
    const double *result = run_host(m->train, HOST_RESULT, &bytes);
    if (m->world.rank == 0) {
        m->result->losses[number] = result[RESULT_LOSS];
        m->result->norms[number] = result[RESULT_NORM];
        m->result->loss_scales[number] = result[RESULT_LOSS_SCALE];
        m->result->updated[number] = result[RESULT_BAD] == 0;
    }
}

static void validate_once(member *m) {
    error e = {0};
    size_t bytes;
    fill(m, m->validation, SMALL_TRAINING_STEPS);
    check(run_step(m->validation, &e), "%s", e.message);
    const double *losses = run_host(m->validation, HOST_RESULT, &bytes);
    double sum = 0;
    for (size_t i = 0; i < bytes / sizeof *losses; i++)
        sum += losses[i];
    if (m->world.rank == 0)
        m->result->arena_bytes = m->plan->arena_bytes;
    if (m->world.rank == 0)
        m->result->validation = sum / (double)(m->training->global_batch * m->training->sequence);
}

static void *rank_main(void *argument) {
    member *m = argument;
    const small_training *t = m->training;
    const config c = config_of(t);
    const device_settings settings = {.threads = t->threads};
    error e = {0};
    check(device_cpu.open(&settings, &m->device, &e), "%s", e.message);
    check(plan_create(&c, &t->shape, &m->world, m->device, (plan_wishes){true, true}, INT64_MAX, &m->plan, &e), "%s",
          e.message);
    check(device_cpu.allocate(m->device, (size_t)m->plan->arena_bytes, &m->arena, &e), "%s", e.message);
    memset(m->arena.base, 0x7f, m->arena.bytes); /* what is read before it is written shows as an enormous number */
    run_settings run_with = plan_run_settings(m->plan, &c);
    run_with.order_seed = t->order_seed;
    check(run_create(m->plan->train->program, &m->world, m->device, &m->arena, &run_with, &m->train, &e), "%s",
          e.message);
    check(run_create(m->plan->validation->program, &m->world, m->device, &m->arena, &run_with, &m->validation, &e),
          "%s", e.message);
    if (t->first_loss_scale > 0)
        m->plan->precision.loss_scale = t->first_loss_scale;
    weights_prepare(m->plan, m->plan->train, m->train, t->sequence);
    if (t->trace_folder != NULL)
        m->trace = trace_create(m->plan->train->program, 2, 3);
    weights_initialise(m->plan, m->plan->train, m->train, 7);
    world_barrier(&m->world);
    for (int64_t number = 0; number < SMALL_TRAINING_STEPS; number++)
        step_and_report(m, number);
    if (m->trace != NULL)
        check(trace_file_write(&m->world, m->trace, 2, 3, t->trace_folder, &e), "%s", e.message);
    keep_weights(m);
    validate_once(m);
    trace_destroy(m->trace);
    run_destroy(m->train);
    run_destroy(m->validation);
    plan_destroy(m->plan);
    device_cpu.release(m->device, &m->arena);
    device_cpu.close(m->device);
    world_close(&m->world);
    return NULL;
}

small_result small_training_run(const small_training *t) {
    model *m = model_create(&t->shape, t->unit_blocks);
    small_result result = {.elements = m->list.elements};
    result.weights = memory_allocate((size_t)result.elements, sizeof *result.weights);
    model_destroy(m);
    loopback *l = loopback_create(t->ranks);
    member *members = memory_allocate((size_t)t->ranks, sizeof *members);
    pthread_t *threads = memory_allocate((size_t)t->ranks, sizeof *threads);
    for (int rank = 0; rank < t->ranks; rank++) {
        members[rank] = (member){.training = t, .result = &result};
        loopback_world(l, rank, &members[rank].world);
        check(pthread_create(&threads[rank], NULL, rank_main, &members[rank]) == 0, "cannot start rank %d", rank);
    }
    for (int rank = 0; rank < t->ranks; rank++)
        pthread_join(threads[rank], NULL);
    loopback_destroy(l);
    free(threads);
    free(members);
    return result;
}

/* Whether AdamW moves this element by what is rounding only. */
static bool is_noise(const model_shape *shape, const parameter *p, int64_t element) {
    const int64_t third = p->shape[0] / 3;
    return shape->family == FAMILY_GPT2 && strstr(p->name, "qkv_bias") != NULL && element / third == 1;
}

double small_training_distance(const small_training *t, const small_result *a, const small_result *b) {
    model *m = model_create(&t->shape, t->unit_blocks);
    double difference = 0, size = 0;
    int64_t at = 0;
    for (int32_t i = 0; i < m->list.count; i++)
        for (int64_t k = 0; k < parameter_elements(&m->list.items[i]); k++, at++) {
            if (is_noise(&t->shape, &m->list.items[i], k))
                continue;
            difference += pow((double)a->weights[at] - (double)b->weights[at], 2);
            size += pow((double)b->weights[at], 2);
        }
    model_destroy(m);
    return sqrt(difference / size);
}
