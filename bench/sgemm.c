/* The yardstick of the training benchmarks: the best rate of oneDNN's single-threaded sgemm over cubes of 1024, 2048
 * and 4096, on as many cores at once as are asked for, in GFLOP/s of all of them together.
 *
 * usage: bench_sgemm [--cores N]      prints a line per size and, last, "best RATE" */
#include "bench/yardstick.h"

#include <pthread.h>
#include <string.h>

enum { SIZES = 3 };
static const int64_t sizes[SIZES] = {1024, 2048, 4096};
static const int repeats[SIZES] = {20, 6, 2};

typedef struct core {
    pthread_t id;
    pthread_barrier_t *start;
    double rate[SIZES];
} core;

static void *measure(void *argument) {
    core *c = argument;
    for (int i = 0; i < SIZES; i++) {
        pthread_barrier_wait(c->start);
        c->rate[i] = sgemm_cube_rate(sizes[i], repeats[i]);
    }
    return NULL;
}

static int cores_of(int argc, char **argv) {
    if (argc == 1)
        return 1;
    int cores = argc == 3 && strcmp(argv[1], "--cores") == 0 ? atoi(argv[2]) : 0;
    if (cores < 1) {
        fprintf(stderr, "usage: bench_sgemm [--cores N]\n");
        exit(2);
    }
    return cores;
}

int main(int argc, char **argv) {
    int count = cores_of(argc, argv);
    core *cores = calloc((size_t)count, sizeof *cores);
    pthread_barrier_t start;
    if (cores == NULL || pthread_barrier_init(&start, NULL, (unsigned)count) != 0)
        return 1;
    for (int i = 0; i < count; i++) {
        cores[i].start = &start;
        if (pthread_create(&cores[i].id, NULL, measure, &cores[i]) != 0) {
            fprintf(stderr, "bench_sgemm: cannot start thread %d\n", i);
            return 1;
        }
    }
    for (int i = 0; i < count; i++)
        pthread_join(cores[i].id, NULL);
    double best = 0;
    for (int s = 0; s < SIZES; s++) {
        double sum = 0;
        for (int i = 0; i < count; i++)
            sum += cores[i].rate[s] * 1e-9;
        best = sum > best ? sum : best;
        printf("dnnl_sgemm %lld x %d: %.1f GFLOP/s\n", (long long)sizes[s], count, sum);
    }
    printf("best %.1f\n", best);
    pthread_barrier_destroy(&start);
    free(cores);
    return 0;
}
