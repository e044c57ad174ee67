/* Loading a checkpoint takes at most 64 MB beside the state, and reads at most as much beyond what is needed, at
 * another number of ranks than it was saved at, too. */
#include "comm/loopback.h"
#include "engine/checked.h"
#include "shard/checkpoint.h"
#include "shard/checkpoint_folder.h"
#include "support/folder.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* 120 MB of state; every saver's file is larger than what a reader may hold of it. */
enum { SAVERS = 8, ELEMENTS = 10000000, MOST = 64000000 };

static parameter only = {.name = "only", .dimensions = 1, .shape = {ELEMENTS, 1}};
static char *unit_name = "unit";
static const parameter_list list = {&only, 1, &unit_name, 1, ELEMENTS};

/* A rank whose state takes no memory: it is computed, and compared. */
typedef struct member {
    world world;
    flat_layout *layout;
    int64_t loaded; /* elements */
    error why;
} member;

static float value(const member *m, state_part part, int64_t at) {
    const flat_slice slice = flat_slice_of(m->layout, &list, m->layout->group_rank, 0);
    return (float)((slice.first + at - slice.at) % 1000003 * STATE_PARTS + (int)part);
}

static void read_part(void *context, int32_t unit, state_part part, int64_t at, int64_t count, float *values) {
    (void)unit;
    for (int64_t i = 0; i < count; i++)
        values[i] = value(context, part, at + i);
}

static void compare_part(void *context, int32_t unit, state_part part, int64_t at, int64_t count, const float *values) {
    (void)unit;
    for (int64_t i = 0; i < count; i++)
        assert_true(values[i] == value(context, part, at + i));
    ((member *)context)->loaded += count;
}

static checkpoint_state state_of(member *m) {
    return (checkpoint_state){&list, m->layout, m, read_part, compare_part};
}

static void *save(void *argument) {
    member *m = argument;
    m->layout = flat_layout_create(&list, SAVERS, m->world.rank);
    const checkpoint_state state = state_of(m);
    const checkpoint_facts facts = {1, 1, m->world.rank == 0 ? json_object() : NULL, 0};
    checkpoint_write(&state, &m->world, "checkpoints", &facts, &m->why);
    json_decref(facts.training);
    flat_layout_destroy(m->layout);
    world_close(&m->world);
    return NULL;
}

static void save_all(void) {
    loopback *l = loopback_create(SAVERS);
    static member members[SAVERS];
    pthread_t threads[SAVERS];
    for (int rank = 0; rank < SAVERS; rank++) {
        members[rank] = (member){0};
        loopback_world(l, rank, &members[rank].world);
        assert_int_equal(pthread_create(&threads[rank], NULL, save, &members[rank]), 0);
    }
    for (int rank = 0; rank < SAVERS; rank++) {
        pthread_join(threads[rank], NULL);
        assert_int_equal(members[rank].why.code, 0);
    }
    loopback_destroy(l);
}

/* A number that the system keeps of this process; -1: it keeps none. */
static int64_t kept(const char *path, const char *name) {
    FILE *from = fopen(path, "re");
    char line[128];
    long long number = -1;
    while (from != NULL && fgets(line, sizeof line, from) != NULL)
        if (strncmp(line, name, strlen(name)) == 0)
            number = atoll(line + strlen(name));
    if (from != NULL)
        fclose(from);
    return number;
}

/* From now on the largest resident size is that since now. */
static bool forget_peak(void) {
    FILE *to = fopen("/proc/self/clear_refs", "we");
    const bool written = to != NULL && fputs("5", to) >= 0;
    return (to != NULL && fclose(to) == 0) && written;
}

static void load(int ranks, int rank) {
    checkpoint_manifest *m;
    member of = {.layout = flat_layout_create(&list, ranks, rank)};
    const checkpoint_state state = state_of(&of);
    const int64_t needed = flat_slice_of(of.layout, &list, rank, 0).count;
    char *path = checkpoint_path("checkpoints", 1), *text;
    size_t bytes;
    if (!forget_peak() || kept("/proc/self/io", "rchar:") < 0)
        skip(); /* this system does not count */
    const int64_t resident = kept("/proc/self/status", "VmRSS:") * 1024, read = kept("/proc/self/io", "rchar:");
    assert_true(checkpoint_manifest_load(path, &text, &bytes, &m, &of.why));
    assert_true(checkpoint_load(&state, m, path, &of.why));
    const int64_t more = kept("/proc/self/status", "VmHWM:") * 1024 - resident;
    const int64_t beyond = kept("/proc/self/io", "rchar:") - read - needed * STATE_PARTS * (int64_t)sizeof(float);
    print_message("rank %d of %d: %.1f MB of memory, %.1f MB read beyond its own\n", rank, ranks, (double)more / 1e6,
                  (double)beyond / 1e6);
    assert_int_equal(of.loaded, needed * STATE_PARTS);
    assert_true(more <= MOST);
    assert_true(beyond >= 0 && beyond <= MOST);
    checkpoint_manifest_destroy(m);
    flat_layout_destroy(of.layout);
    free(text);
    free(path);
}

static void loading_takes_little_beside_the_state(void **state) {
    (void)state;
    save_all();
    load(1, 0);
    load(5, 3);
    load(SAVERS, 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {TEST_IN_FOLDER(loading_takes_little_beside_the_state)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
