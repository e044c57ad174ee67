#include "comm/patience.h"

#include <sched.h>
#include <time.h>

enum { SPINS = 200, YIELDS = 200 };
static const double SHORTEST_SLEEP = 20e-6, LONGEST_SLEEP = 1e-3;

double patience_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

patience patience_begin(void) {
    return (patience){.begun = patience_clock()};
}

void patience_sleep(double seconds) {
    struct timespec t = {.tv_sec = (time_t)seconds};
    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
    nanosleep(&t, NULL);
}

double patience_pause(patience *p) {
    double waited = patience_clock() - p->begun;
    if (p->rounds < SPINS + YIELDS)
        p->rounds++;
    if (p->rounds <= SPINS)
        return waited;
    if (p->rounds < SPINS + YIELDS) {
        sched_yield();
        return waited;
    }
    double sleep = waited / 8;
    patience_sleep(sleep < SHORTEST_SLEEP ? SHORTEST_SLEEP : sleep > LONGEST_SLEEP ? LONGEST_SLEEP : sleep);
    return waited;
}
