#include "support/checkpoint_ranks.h"

#include "comm/loopback.h"
#include "engine/checked.h"
#include "engine/device/half.h"
#include "shard/checkpoint_folder.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- parameters ---- */

static const int64_t shapes[][2] = {{1, 1}, {3, 1}, {7, 1}, {13, 17}, {2, 1}, {1009, 1}, {64, 64}, {5, 1}, {127, 3}};
enum { PARAMETERS = sizeof shapes / sizeof *shapes, FEW = 5 };

parameter_list *test_list_create(int together, bool few) {
    parameter_list *list = memory_allocate(1, sizeof *list);
    list->count = few ? FEW : PARAMETERS;
    list->items = memory_allocate(PARAMETERS, sizeof *list->items);
    list->unit_count = (int32_t)divide_up(list->count, together);
    list->unit_names = memory_allocate((size_t)list->unit_count, sizeof *list->unit_names);
    for (int32_t u = 0; u < list->unit_count; u++)
        list->unit_names[u] = memory_format("unit%d", (int)u);
    for (int32_t i = 0; i < list->count; i++) {
        parameter *p = &list->items[i];
        *p = (parameter){.name = memory_format("parameter%d", (int)i),
                         .unit = i / together,
                         .dimensions = shapes[i][1] > 1 ? 2 : 1,
                         .shape = {shapes[i][0], shapes[i][1]}};
        list->elements += parameter_elements(p);
    }
    return list;
}

void test_list_destroy(parameter_list *list) {
    for (int32_t u = 0; u < list->unit_count; u++)
        free(list->unit_names[u]);
    for (int32_t i = 0; i < list->count; i++)
        free(list->items[i].name);
    free(list->unit_names);
    free(list->items);
    free(list);
}

/* ---- a rank ---- */

typedef struct member {
    rank_layout as;
    const char *path; /* folder to save into, or checkpoint to load */
    int64_t step;
    bool saves, copies;
    world world;
    parameter_list *list;
    flat_layout *layout;
    float **parts; /* [units * STATE_PARTS] */
    error why;
} member;

static float *part_of(const member *m, int32_t unit, state_part part) {
    return m->parts[unit * STATE_PARTS + (int)part];
}

static void read_part(void *context, int32_t unit, state_part part, int64_t at, int64_t count, float *values) {
    memcpy(values, part_of(context, unit, part) + at, (size_t)count * sizeof *values);
}

static void write_part(void *context, int32_t unit, state_part part, int64_t at, int64_t count, const float *values) {
    memcpy(part_of(context, unit, part) + at, values, (size_t)count * sizeof *values);
}

static void fill_padding(member *m) {
    for (int32_t u = 0; u < m->list->unit_count; u++)
        for (int part = 0; part < STATE_PARTS; part++) {
            const int64_t shard = m->layout->units[u].shard;
            float *values = memory_allocate((size_t)shard, sizeof *values);
            for (int64_t i = 0; i < shard; i++)
                values[i] = float_from_bits(TEST_PADDING);
            m->parts[u * STATE_PARTS + part] = values;
        }
}

static float value(int32_t index, state_part part, int64_t element) {
    return (float)(index * 100000 + element) + 0.25f * (float)part;
}

/* Gives every element its value (fill), or takes it away again after comparing it, so that only padding is left. */
static bool visit(member *m, bool fill) {
    bool good = true;
    for (int part = 0; part < STATE_PARTS; part++)
        for (int32_t i = 0; i < m->list->count; i++) {
            const flat_slice slice = flat_slice_of(m->layout, m->list, m->layout->group_rank, i);
            float *values = part_of(m, m->list->items[i].unit, (state_part)part) + slice.at;
            for (int64_t k = 0; k < slice.count; k++) {
                const float wanted = value(i, (state_part)part, slice.first + k);
                good = good && (fill || float_bits(values[k]) == float_bits(wanted));
                values[k] = fill ? wanted : float_from_bits(TEST_PADDING);
            }
        }
    return good;
}

static bool only_padding(const member *m) {
    for (int32_t u = 0; u < m->list->unit_count; u++)
        for (int part = 0; part < STATE_PARTS; part++)
            for (int64_t i = 0; i < m->layout->units[u].shard; i++)
                if (float_bits(part_of(m, u, (state_part)part)[i]) != TEST_PADDING)
                    return false;
    return true;
}

/* Training goes on once the copy is made. */
static void save_copied(member *m, const checkpoint_state *state, const checkpoint_facts *facts) {
    void *copy = memory_allocate((size_t)checkpoint_copy_bytes(m->list, m->layout), 1);
    checkpoint_writing *g = checkpoint_begin(state, &m->world, m->path, facts, copy);
    error left;
    visit(m, false);
    do
        checkpoint_work(g);
    while (checkpoint_meet(g, &m->why));
    checkpoint_end(g, &left);
    free(copy);
}

static void save(member *m, const checkpoint_state *state) {
    checkpoint_facts facts = {m->step, m->step - 1, m->world.rank == 0 ? json_pack("{s:i}", "anything", 7) : NULL, 0};
    visit(m, true);
    if (m->copies)
        save_copied(m, state, &facts);
    else
        checkpoint_write(state, &m->world, m->path, &facts, &m->why);
    json_decref(facts.training);
}

static void load(member *m, const checkpoint_state *state) {
    char *text;
    size_t bytes;
    checkpoint_manifest *manifest;
    if (!checkpoint_manifest_load(m->path, &text, &bytes, &manifest, &m->why))
        return;
    free(text);
    if (checkpoint_check_files(manifest, m->path, &m->why) &&
        checkpoint_check_parameters(manifest, m->path, m->list, &m->why) &&
        checkpoint_load(state, manifest, m->path, &m->why)) {
        if (!visit(m, false))
            error_set(&m->why, EXIT_INTERNAL, "rank %d: values differ", m->world.rank);
        if (!only_padding(m))
            error_set(&m->why, EXIT_INTERNAL, "rank %d: padding was touched", m->world.rank);
    }
    checkpoint_manifest_destroy(manifest);
}

static void *rank_main(void *argument) {
    member *m = argument;
    m->list = test_list_create(m->as.together, m->as.few);
    m->layout = flat_layout_create(m->list, m->as.group, m->world.rank % m->as.group);
    m->parts = memory_allocate((size_t)m->list->unit_count * STATE_PARTS, sizeof *m->parts);
    fill_padding(m);
    const checkpoint_state state = {m->list, m->layout, m, read_part, write_part};
    if (m->saves)
        save(m, &state);
    else
        load(m, &state);
    for (int32_t k = 0; k < m->list->unit_count * STATE_PARTS; k++)
        free(m->parts[k]);
    free(m->parts);
    flat_layout_destroy(m->layout);
    test_list_destroy(m->list);
    world_close(&m->world);
    return NULL;
}

static void run_ranks(const member *like, error *why) {
    const int ranks = like->as.ranks;
    loopback *l = loopback_create(ranks);
    member *members = memory_allocate((size_t)ranks, sizeof *members);
    pthread_t *threads = memory_allocate((size_t)ranks, sizeof *threads);
    for (int rank = 0; rank < ranks; rank++) {
        members[rank] = *like;
        loopback_world(l, rank, &members[rank].world);
        check(pthread_create(&threads[rank], NULL, rank_main, &members[rank]) == 0, "cannot start rank %d", rank);
    }
    for (int rank = 0; rank < ranks; rank++) {
        pthread_join(threads[rank], NULL);
        if (members[rank].why.code != 0)
            error_set(why, members[rank].why.code, "%s", members[rank].why.message);
    }
    free(threads);
    free(members);
    loopback_destroy(l);
}

void test_checkpoint_save(rank_layout as, const char *folder, int64_t step) {
    error why = {0};
    run_ranks(&(member){.as = as, .path = folder, .step = step, .saves = true}, &why);
    check(why.code == 0, "%s", why.message);
}

void test_checkpoint_save_copied(rank_layout as, const char *folder, int64_t step) {
    error why = {0};
    run_ranks(&(member){.as = as, .path = folder, .step = step, .saves = true, .copies = true}, &why);
    check(why.code == 0, "%s", why.message);
}

bool test_checkpoint_load(rank_layout as, const char *path, error *why) {
    run_ranks(&(member){.as = as, .path = path}, why);
    return why->code == 0;
}

bool test_checkpoint_whole(const char *path, error *why) {
    char *text;
    size_t bytes;
    checkpoint_manifest *m;
    if (!checkpoint_manifest_load(path, &text, &bytes, &m, why))
        return false;
    free(text);
    const bool whole = checkpoint_check_files(m, path, why) && checkpoint_check_chunks(m, path, why);
    checkpoint_manifest_destroy(m);
    return whole;
}
