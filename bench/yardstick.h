/* The yardstick of the CPU benchmarks: the best rate that oneDNN's sgemm reaches on this machine, measured in the same
 * run as what is compared with it. */
#ifndef FSDP_BENCH_YARDSTICK_H
#define FSDP_BENCH_YARDSTICK_H

#include <dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Of the OpenMP runtime inside oneDNN. */
void omp_set_num_threads(int threads);

static inline double seconds_of(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static inline double seconds_now(void) {
    return seconds_of(CLOCK_MONOTONIC);
}

/* Floats that are neither all alike nor subnormal. */
static inline float *numbers_allocate(size_t count) {
    float *numbers = aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64);
    if (numbers == NULL) {
        fprintf(stderr, "out of memory for %zu floats\n", count);
        exit(1);
    }
    for (size_t i = 0; i < count; i++)
        numbers[i] = (float)(i * 2654435761u % 2001) / 1000.0f - 1.0f;
    return numbers;
}

/* FLOP/s of one single-threaded dnnl_sgemm on a cube of this size, the best of `repeats`. */
static inline double sgemm_cube_rate_of(clockid_t clock, int64_t size, int repeats) {
    size_t count = (size_t)size * (size_t)size;
    float *a = numbers_allocate(count), *b = numbers_allocate(count), *c = numbers_allocate(count);
    double best = 0;
    omp_set_num_threads(1);
    for (int i = 0; i < repeats; i++) {
        double start = seconds_of(clock);
        dnnl_sgemm('N', 'N', size, size, size, 1.0f, a, size, b, size, 0.0f, c, size);
        double rate = 2.0 * (double)size * (double)size * (double)size / (seconds_of(clock) - start);
        best = rate > best ? rate : best;
    }
    free(a);
    free(b);
    free(c);
    return best;
}

static inline double sgemm_cube_rate(int64_t size, int repeats) {
    return sgemm_cube_rate_of(CLOCK_MONOTONIC, size, repeats);
}

#endif
