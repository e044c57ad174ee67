/* Checkpoints against plain sequential files of the same bytes on the same disk, by as many writers (threads of this
 * process): seconds to save (with fsync) and to load (checksums compared); the stall of a checkpoint in the background
 * against memcpy of the state; and the ratios.
 *
 *   bench_checkpoint FOLDER [MEGABYTES [RANKS [COMMAND]]]     default: 600 MB of state, 2 ranks
 *
 * COMMAND, as in "python bench/checkpoint_dcp.py", is then run with the same folder, megabytes, ranks and rounds. All
 * is done in turn, in five rounds, and the best counts. Before reading, the system is told to forget what it has cached
 * of the files. */
#include "shard/checkpoint.h"
#include "comm/loopback.h"
#include "engine/checked.h"
#include "shard/checkpoint_folder.h"
#include "shard/file.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 5 };
enum job { SAVE, LOAD, PLAIN_WRITE, PLAIN_READ, COPY, PLAIN_COPY, JOBS };

typedef struct member {
    const char *folder;
    const parameter_list *list;
    int ranks, round;
    enum job job;
    world world;
    flat_layout *layout;
    float *state[STATE_PARTS];
    void *copy;    /* of all parts */
    int64_t bytes; /* of all parts */
} member;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void read_state(void *context, int32_t unit, state_part part, int64_t at, int64_t count, float *values) {
    (void)unit;
    memcpy(values, ((member *)context)->state[part] + at, (size_t)count * sizeof *values);
}

static void write_state(void *context, int32_t unit, state_part part, int64_t at, int64_t count, const float *values) {
    (void)unit;
    memcpy(((member *)context)->state[part] + at, values, (size_t)count * sizeof *values);
}

static void plain(member *m, error *e) {
    char *path = memory_format("%s/plain-%d", m->folder, m->world.rank);
    const bool writes = m->job == PLAIN_WRITE;
    const int file = open(path, writes ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY, 0666);
    const int64_t part = m->bytes / STATE_PARTS;
    for (int p = 0; p < STATE_PARTS; p++)
        for (int64_t at = 0; at < part; at += CHUNK_BYTES) {
            char *bytes = (char *)m->state[p] + at;
            const size_t count = (size_t)minimum(CHUNK_BYTES, part - at);
            if (writes)
                file_write_at(file, path, bytes, count, p * part + at, e);
            else
                file_read_at(file, path, bytes, count, p * part + at, e);
        }
    if (writes && fsync(file) != 0)
        error_set(e, EXIT_MODEL, "%s: cannot sync", path);
    close(file);
    free(path);
}

static void load(member *m, const checkpoint_state *state, error *e) {
    char *path = checkpoint_path(m->folder, m->round), *text;
    size_t bytes;
    checkpoint_manifest *manifest;
    if (checkpoint_manifest_load(path, &text, &bytes, &manifest, e)) {
        free(text);
        if (checkpoint_check_files(manifest, path, e))
            checkpoint_load(state, manifest, path, e);
        checkpoint_manifest_destroy(manifest);
    }
    free(path);
}

/* What training waits for: the rest is another thread's. */
static void begin(member *m, const checkpoint_state *state, const checkpoint_facts *facts) {
    error left;
    checkpoint_end(checkpoint_begin(state, &m->world, m->folder, facts, m->copy), &left);
}

static void plain_copy(member *m) {
    const size_t part = (size_t)(m->bytes / STATE_PARTS);
    for (size_t p = 0; p < STATE_PARTS; p++)
        memcpy((char *)m->copy + p * part, m->state[p], part);
}

static void *work(void *argument) {
    member *m = argument;
    error e = {0};
    const checkpoint_state state = {m->list, m->layout, m, read_state, write_state};
    checkpoint_facts facts = {m->round, m->round, m->world.rank == 0 ? json_object() : NULL, 0};
    if (m->job == SAVE)
        checkpoint_write(&state, &m->world, m->folder, &facts, &e);
    else if (m->job == LOAD)
        load(m, &state, &e);
    else if (m->job == COPY)
        begin(m, &state, &facts);
    else if (m->job == PLAIN_COPY)
        plain_copy(m);
    else
        plain(m, &e);
    json_decref(facts.training);
    check(e.code == 0, "%s", e.message);
    return NULL;
}

static void forget(char *path) {
    const int file = open(path, O_RDONLY);
    if (file >= 0) {
        posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
        close(file);
    }
    free(path);
}

static double timed(member *members, enum job job, int round) {
    const int ranks = members[0].ranks;
    pthread_t *threads = memory_allocate((size_t)ranks, sizeof *threads);
    for (int rank = 0; rank < ranks; rank++) {
        forget(memory_format("%s/step-%08d/shard-%05d.bin", members[0].folder, round, rank));
        forget(memory_format("%s/plain-%d", members[0].folder, rank));
    }
    const double start = now();
    for (int rank = 0; rank < ranks; rank++) {
        members[rank].job = job;
        members[rank].round = round;
        check(pthread_create(&threads[rank], NULL, work, &members[rank]) == 0, "cannot start a thread");
    }
    for (int rank = 0; rank < ranks; rank++)
        pthread_join(threads[rank], NULL);
    free(threads);
    return now() - start;
}

static void open_member(member *m, loopback *l, int rank) {
    loopback_world(l, rank, &m->world);
    m->layout = flat_layout_create(m->list, m->ranks, rank);
    const flat_slice slice = flat_slice_of(m->layout, m->list, rank, 0);
    m->bytes = slice.count * (int64_t)sizeof(float) * STATE_PARTS;
    for (int p = 0; p < STATE_PARTS; p++) {
        m->state[p] = memory_allocate((size_t)m->layout->units[0].shard, sizeof(float));
        for (int64_t i = 0; i < slice.count; i++)
            m->state[p][i] = (float)(i * 7 + p);
    }
    const size_t bytes = (size_t)checkpoint_copy_bytes(m->list, m->layout);
    m->copy = memory_allocate(bytes, 1);
    memset(m->copy, 0xff, bytes);
}

static void close_member(member *m) {
    char *plain_file = memory_format("%s/plain-%d", m->folder, m->world.rank);
    unlink(plain_file);
    free(plain_file);
    for (int p = 0; p < STATE_PARTS; p++)
        free(m->state[p]);
    free(m->copy);
    flat_layout_destroy(m->layout);
    world_close(&m->world);
}

static void measure(member *members, int64_t bytes) {
    double best[JOBS] = {0};
    error e = {0};
    for (int round = 1; round <= ROUNDS; round++) {
        for (int job = 0; job < JOBS; job++) {
            const double seconds = timed(members, (enum job)job, round);
            best[job] = best[job] > 0 && best[job] < seconds ? best[job] : seconds;
        }
        checkpoint_prune(members[0].folder, 0, &e);
    }
    const double megabytes = (double)bytes / 1e6;
    printf("%.0f MB of state, %d ranks\n", megabytes, members[0].ranks);
    printf("save   %7.0f MB/s, plain files %7.0f MB/s: %.2f of it\n", megabytes / best[SAVE],
           megabytes / best[PLAIN_WRITE], best[PLAIN_WRITE] / best[SAVE]);
    printf("load   %7.0f MB/s, plain files %7.0f MB/s: %.2f of it, checksums compared\n", megabytes / best[LOAD],
           megabytes / best[PLAIN_READ], best[PLAIN_READ] / best[LOAD]);
    printf("stall  %7.4f s in the background, memcpy of the state %7.4f s: %.2f times it\n", best[COPY],
           best[PLAIN_COPY], best[COPY] / best[PLAIN_COPY]);
    fflush(stdout);
}

static int run_peer(const char *command, const char *folder, int64_t megabytes, int ranks) {
    char *line = memory_format("%s '%s' %lld %d %d", command, folder, (long long)megabytes, ranks, ROUNDS);
    const int result = system(line);
    free(line);
    return result == 0 ? EXIT_FINISHED : EXIT_INTERNAL;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fputs("bench_checkpoint FOLDER [MEGABYTES [RANKS [COMMAND]]]\n", stderr);
        return EXIT_USAGE;
    }
    const int64_t megabytes = argc > 2 ? atoll(argv[2]) : 600;
    const int ranks = argc > 3 ? atoi(argv[3]) : 2;
    check(megabytes > 0 && ranks > 0 && folder_make(argv[1]), "megabytes, ranks and a folder are expected");
    parameter only = {.name = "state", .dimensions = 1, .shape = {megabytes * 1000000 / (4 * STATE_PARTS), 1}};
    char *unit = "unit";
    const parameter_list list = {&only, 1, &unit, 1, only.shape[0]};
    loopback *l = loopback_create(ranks);
    member *members = memory_allocate((size_t)ranks, sizeof *members);
    for (int rank = 0; rank < ranks; rank++) {
        members[rank] = (member){.folder = argv[1], .list = &list, .ranks = ranks};
        open_member(&members[rank], l, rank);
    }
    measure(members, only.shape[0] * 4 * STATE_PARTS);
    for (int rank = 0; rank < ranks; rank++)
        close_member(&members[rank]);
    free(members);
    loopback_destroy(l);
    return argc > 4 ? run_peer(argv[4], argv[1], megabytes, ranks) : EXIT_FINISHED;
}
