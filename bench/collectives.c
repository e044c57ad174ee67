/* Collectives through the window and as messages, against memcpy of the same bytes: mpirun -np 2 bench_collectives.
 * Over several nodes there are only messages.
 *
 * Bandwidths are those of nccl-tests. Of the algorithm: bytes of the whole buffer, all ranks' parts, in the time of one
 * collective. Of the bus: times (n - 1) / n for n ranks, what crosses the links of each, which does not depend on n
 * where links are the limit; fsdp_topology predicts it of a ring.
 *
 * An all_gather of S bytes per rank copies S from every rank, its own included; a reduce_scatter reads S from every
 * rank. memcpy moves as many bytes between private buffers that are in memory already. All ranks do the same at once,
 * a few times in a row as the units of a model follow each other, and the job's time counts: from the first rank's
 * start to the last one's end. The best of several turns of each kind, taken in turn, so that ratios of one run
 * compare. */
#include "comm/collectives.h"
#include "comm/patience.h"
#include "engine/checked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct size {
    int64_t megabytes; /* of one rank's part */
    int32_t in_a_row;
    int turns;
} size;

static const size SIZES[] = {{1, 32, 40}, {16, 8, 20}, {256, 2, 7}};

typedef struct bench {
    world *w;
    size_t part;      /* bytes */
    int32_t in_a_row; /* collectives of each kind: all_gathers first, then reduce_scatters */
    transport transport;
    collectives *collectives;
    char *from, *to; /* of memcpy: a part from every rank */
    error *error;
} bench;

/* All work on one input and one output. */
static bool open_all(bench *b, device *d, const device_memory *m) {
    static const operation_kind kinds[] = {OPERATION_ALL_GATHER, OPERATION_REDUCE_SCATTER};
    collective *list = memory_allocate((size_t)b->in_a_row * 2, sizeof *list);
    for (int32_t i = 0; i < 2 * b->in_a_row; i++)
        list[i] = (collective){.kind = kinds[i / b->in_a_row],
                               .group_stride = 1,
                               .group_size = b->w->size,
                               .odd = b->w->size,
                               .count = (int64_t)(b->part / sizeof(float)),
                               .output = (int64_t)b->part * b->w->size,
                               .name = "collective"};
    const collectives_settings settings = {.device = d,
                                           .arena = m,
                                           .workspace = 2 * (int64_t)b->part * b->w->size,
                                           .transport = b->transport,
                                           .timeout = 60};
    bool fine = collectives_host.open(b->w, &settings, list, 2 * b->in_a_row, &b->collectives, b->error);
    free(list);
    return fine;
}

static void run_collectives(bench *b, int32_t first) {
    for (int32_t i = first; i < first + b->in_a_row; i++) {
        collectives_issue(b->collectives, i);
        collectives_complete(b->collectives, i, 0, b->error);
    }
}

static void gather(bench *b) {
    run_collectives(b, 0);
}

static void reduce(bench *b) {
    run_collectives(b, b->in_a_row);
    collectives_finish(b->collectives, b->error);
}

static void copy(bench *b) {
    for (int32_t i = 0; i < b->in_a_row; i++)
        memcpy(b->to, b->from, b->part * (size_t)b->w->size);
}

/* Seconds of one, from the first rank's start to the last one's end, where that is less than `best`. */
static double better(bench *b, double best, void (*act)(bench *)) {
    world_barrier(b->w);
    const double begun = patience_clock();
    act(b);
    const double ended = patience_clock();
    const double seconds = (world_maximum(b->w, ended) + world_maximum(b->w, -begun)) / b->in_a_row;
    return seconds < best ? seconds : best;
}

static void print_rates(double bytes, double seconds, double copying, int ranks) {
    const double algorithm = bytes / seconds * 1e-9;
    printf("   %9.2f  %9.2f  %9.2f", algorithm, algorithm * (ranks - 1) / ranks, copying / seconds);
}

static void print_heading(void) {
    printf("GB/s      %8s  %8s   %-31s   %s\n", "", "", "all_gather", "reduce_scatter");
    printf("%-8s  %8s  %8s", "", "MB/rank", "memcpy");
    for (int kind = 0; kind < 2; kind++)
        printf("   %9s  %9s  %9s", "algorithm", "bus", "/ memcpy");
    putchar('\n');
}

static void measure(bench *b, int turns) {
    double gathering = 1e9, reducing = 1e9, copying = 1e9;
    const double bytes = (double)b->part * b->w->size;
    for (int i = 0; i < turns && b->error->code == 0; i++) {
        gathering = better(b, gathering, gather);
        reducing = better(b, reducing, reduce);
        copying = better(b, copying, copy);
    }
    if (b->w->rank != 0 || b->error->code != 0)
        return;
    printf("%-8s  %8zu  %8.2f", b->transport == TRANSPORT_WINDOW ? "window" : "messages", b->part >> 20,
           bytes / copying * 1e-9);
    print_rates(bytes, gathering, copying, b->w->size);
    print_rates(bytes, reducing, copying, b->w->size);
    putchar('\n');
}

static bool measure_size(world *w, device *d, const size *s, transport how, error *e) {
    bench b = {.w = w, .part = (size_t)s->megabytes << 20, .in_a_row = s->in_a_row, .transport = how, .error = e};
    const size_t moved = b.part * (size_t)w->size;
    device_memory m;
    if (!device_cpu.allocate(d, 3 * moved, &m, e)) /* input, output, workspace of messages */
        return false;
    memset(m.base, 0, m.bytes);
    device_cpu.enlarge_pages(d, &m);
    b.from = memory_allocate(moved, 1);
    b.to = memory_allocate(moved, 1);
    memset(b.from, 1, moved);
    memset(b.to, 1, moved);
    if (open_all(&b, d, &m)) {
        measure(&b, s->turns);
        collectives_close(b.collectives);
    }
    world_barrier(w);
    free(b.from);
    free(b.to);
    device_cpu.release(d, &m);
    return e->code == 0;
}

int main(int argc, char **argv) {
    world w;
    error e = {0};
    device *d = NULL;
    const device_settings settings = {.threads = 1};
    bool fine = world_open(&w, &argc, &argv, &e);
    if (fine && w.size < 2)
        fine = error_set(&e, EXIT_USAGE, "start it with mpirun -np 2 or more");
    fine = fine && device_cpu.open(&settings, &d, &e);
    if (fine && w.rank == 0)
        print_heading();
    for (int how = w.nodes > 1 ? TRANSPORT_MESSAGES : TRANSPORT_WINDOW; how <= TRANSPORT_MESSAGES; how++)
        for (size_t i = 0; fine && i < sizeof SIZES / sizeof *SIZES; i++)
            fine = measure_size(&w, d, &SIZES[i], (transport)how, &e);
    if (!world_agree(&w, &e) && world_speaks(&w))
        fprintf(stderr, "bench_collectives: %s\n", e.message);
    if (d != NULL)
        device_cpu.close(d);
    world_close(&w);
    return e.code;
}
