#include "launch/topology_text.h"

#include "engine/checked.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static double cost(const topology *t, const ring_set *set, int link) {
    return set->price[link] * t->links[link].bandwidth;
}

int topology_limits(const topology *t, const ring_set *set, int **links) {
    int count = 0;
    *links = memory_allocate((size_t)t->link_count + 1, sizeof **links);
    for (int l = 0; l < t->link_count; l++) {
        if (cost(t, set, l) < 1e-6 * set->bound)
            continue;
        int place = count++;
        for (; place > 0 && cost(t, set, (*links)[place - 1]) < cost(t, set, l) * (1 - 1e-9); place--)
            (*links)[place] = (*links)[place - 1];
        (*links)[place] = l;
    }
    return count;
}

bool topology_one_cut(const topology *t, const ring_set *set, const int *links, int count, double *crossings,
                      double *bandwidth) {
    *bandwidth = 0;
    for (int i = 0; i < count; i++) {
        *bandwidth += t->links[links[i]].bandwidth;
        if (fabs(set->price[links[i]] - set->price[links[0]]) > 1e-6 * set->price[links[0]])
            return false;
    }
    *crossings = count > 0 ? 1 / set->price[links[0]] : 0;
    return count > 0;
}

const char *topology_number(double value, char text[TOPOLOGY_NUMBER]) {
    snprintf(text, TOPOLOGY_NUMBER, value >= 100 ? "%.4g" : "%.3g", value);
    return text;
}
