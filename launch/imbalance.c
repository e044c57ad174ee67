#include "launch/imbalance.h"

#include "engine/checked.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS_OF_RUN = 5, RUNS = 4, NOBODY = -1 };
static const double BEHIND = 0.1;

double exposed_seconds(const step_shares *shares) {
    return shares->gather + shares->reduce;
}

step_shares shares_sum(step_shares a, step_shares b) {
    return (step_shares){a.compute + b.compute, a.gather + b.gather, a.reduce + b.reduce, a.idle + b.idle};
}

imbalance imbalance_of(const step_shares *shares, int ranks) {
    imbalance found = {0};
    for (int rank = 0; rank < ranks; rank++) {
        const double exposed = exposed_seconds(&shares[rank]);
        found.sum = shares_sum(found.sum, shares[rank]);
        found.exposed = isnan(exposed) ? NAN : fmax(found.exposed, exposed);
        if (shares[rank].compute > shares[found.slowest].compute)
            found.slowest = rank;
    }
    found.slowest_shares = shares[found.slowest];
    /* Where waiting is not measured, it is in what was taken for computing. */
    found.compute = isnan(found.exposed) ? NAN : found.sum.compute / ranks;
    return found;
}

laggards laggards_create(int ranks) {
    return (laggards){
        .ranks = ranks, .compute = memory_allocate((size_t)ranks, sizeof(double)), .rank = NOBODY, .named = NOBODY};
}

void laggards_release(laggards *l) {
    free(l->compute);
}

/* The rank that is behind in the present run of steps. */
static int find_behind(const laggards *l, double *behind) {
    double sum = 0;
    int slowest = 0;
    for (int rank = 0; rank < l->ranks; rank++) {
        sum += l->compute[rank];
        if (l->compute[rank] > l->compute[slowest])
            slowest = rank;
    }
    *behind = l->compute[slowest] * l->ranks / sum - 1;
    return *behind >= BEHIND ? slowest : NOBODY;
}

int laggards_watch(laggards *l, const step_shares *shares, double *behind) {
    for (int rank = 0; rank < l->ranks; rank++)
        l->compute[rank] += isnan(exposed_seconds(&shares[rank])) ? 0 : shares[rank].compute;
    if (++l->steps < STEPS_OF_RUN)
        return NOBODY;
    const int rank = find_behind(l, behind);
    memset(l->compute, 0, (size_t)l->ranks * sizeof *l->compute);
    l->steps = 0;
    l->runs = rank == l->rank ? l->runs + 1 : 1;
    l->rank = rank;
    if (rank == NOBODY || l->runs < RUNS || rank == l->named)
        return NOBODY;
    return l->named = rank;
}
