/* Collectives through the window against memcpy of the same bytes: mpirun -np 2 bench_collectives.
 *
 * An all_gather of S bytes per rank copies S from every rank, its own included; a reduce_scatter reads S from every
 * rank. memcpy moves as many bytes of private memory, on all ranks at once. Best of several repetitions, slowest rank,
 * so that ratios of one run compare. */
#include "comm/collectives.h"
#include "comm/patience.h"
#include "engine/checked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 256, REPETITIONS = 7 };
static const int64_t MEGABYTES[] = {1, 16, 256};

/* Both collectives share one input. */
static bool open_pair(world *w, device *d, const device_memory *m, int64_t elements, collectives **c, error *e) {
    int64_t part = elements * (int64_t)sizeof(float), whole = part * w->size;
    const collective list[] = {{.kind = OPERATION_ALL_GATHER,
                                .group_stride = 1,
                                .group_size = w->size,
                                .odd = w->size,
                                .count = elements,
                                .input = 0,
                                .output = whole,
                                .name = "all_gather"},
                               {.kind = OPERATION_REDUCE_SCATTER,
                                .group_stride = 1,
                                .group_size = w->size,
                                .odd = w->size,
                                .count = elements,
                                .input = 0,
                                .output = whole,
                                .name = "reduce_scatter"}};
    const collectives_settings settings = {.device = d, .arena = m, .transport = TRANSPORT_WINDOW, .timeout = 60};
    return collectives_host.open(w, &settings, list, 2, c, e);
}

/* Seconds of collective `which`, of this step's two. */
static double timed(world *w, collectives *c, int32_t which, error *e) {
    double seconds = 0;
    for (int32_t i = 0; i < 2; i++) {
        world_barrier(w);
        double begun = patience_clock();
        collectives_issue(c, i);
        if (!collectives_complete(c, i, 0, e))
            return 0;
        seconds = i == which ? patience_clock() - begun : seconds;
    }
    collectives_finish(c, e);
    return seconds;
}

static double timed_copy(world *w, char *to, const char *from, size_t bytes) {
    world_barrier(w);
    double begun = patience_clock();
    memcpy(to, from, bytes);
    return patience_clock() - begun;
}

static double better(double best, double seconds) {
    return best <= 0 || seconds < best ? seconds : best;
}

static bool measure(world *w, device *d, int64_t megabytes, error *e) {
    size_t part = (size_t)megabytes << 20, moved = part * (size_t)w->size;
    device_memory m;
    collectives *c = NULL;
    if (!device_cpu.allocate(d, 2 * moved, &m, e))
        return false;
    memset(m.base, 0, m.bytes);
    char *from = memory_allocate(moved, 1), *to = memory_allocate(moved, 1);
    memset(from, 1, moved);
    memset(to, 1, moved);
    double gather = 0, reduce = 0, copy = 0;
    bool fine = open_pair(w, d, &m, (int64_t)(part / sizeof(float)), &c, e);
    for (int i = 0; fine && i < REPETITIONS; i++) {
        gather = better(gather, timed(w, c, 0, e));
        reduce = better(reduce, timed(w, c, 1, e));
        copy = better(copy, timed_copy(w, to, from, moved));
        fine = e->code == 0;
    }
    gather = world_maximum(w, gather);
    reduce = world_maximum(w, reduce);
    copy = world_maximum(w, copy);
    if (fine && w->rank == 0)
        printf("%5lld MB  all_gather %6.2f GB/s, %4.2f of memcpy   reduce_scatter %6.2f GB/s, %4.2f of memcpy\n",
               (long long)megabytes, (double)moved / gather * 1e-9, copy / gather, (double)moved / reduce * 1e-9,
               copy / reduce);
    if (fine)
        collectives_close(c);
    world_barrier(w);
    free(from);
    free(to);
    device_cpu.release(d, &m);
    return fine;
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
    for (size_t i = 0; fine && i < sizeof MEGABYTES / sizeof *MEGABYTES; i++)
        fine = measure(&w, d, MEGABYTES[i], &e);
    if (!world_agree(&w, &e) && world_speaks(&w))
        fprintf(stderr, "bench_collectives: %s\n", e.message);
    if (d != NULL)
        device_cpu.close(d);
    world_close(&w);
    return e.code;
}
