#include "comm/ring.h"

#include "comm/ring_channels.h"
#include "comm/ring_search.h"
#include "engine/checked.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of processor time; then the best so far, and its bound. */
#define SECONDS_FOR_RINGS 0.5
#define SECONDS_FOR_CHANNELS 0.4
#define WORK_ON_CHANNELS (INT64_C(1) << 23) /* subsets of tours: the same everywhere, some tenths of a second */

/* From the lowest device number on. */
static void rotate(const topology *t, ring *r, int gpus) {
    int turned[RING_GPUS_MOST], lowest = 0;
    for (int i = 1; i < gpus; i++)
        if (t->nodes[r->order[i]].number < t->nodes[r->order[lowest]].number)
            lowest = i;
    for (int i = 0; i < gpus; i++)
        turned[i] = r->order[(lowest + i) % gpus];
    memcpy(r->order, turned, (size_t)gpus * sizeof *turned);
}

/* Steps, and the link that would be the ring's limit alone. */
static void describe(const ring_search *s, ring *r, const double *used) {
    const route *taken[RING_GPUS_MOST + 1];
    const topology *t = s->steps.t;
    if (r->card < 0)
        rotate(t, r, s->steps.gpus);
    r->step_count = ring_search_steps(s, r, taken);
    for (int i = 0; i < r->step_count; i++)
        r->steps[i] = taken[i]->kind;
    r->slowest = -1;
    for (int l = 0; l < s->links; l++) {
        const double alone = used[l] > 0 ? t->links[l].bandwidth / used[l] : 0;
        if (alone > 0 && (r->slowest < 0 || alone < r->alone * (1 - 1e-9)))
            r->slowest = l, r->alone = alone;
    }
}

static int compare_rings(const void *a, const void *b) {
    const ring *one = a, *other = b;
    if (fabs(one->bandwidth - other->bandwidth) > 1e-6)
        return one->bandwidth > other->bandwidth ? -1 : 1;
    if (one->card != other->card)
        return one->card < other->card ? -1 : 1;
    for (int i = 0; i < RING_GPUS_MOST; i++)
        if (one->order[i] != other->order[i])
            return one->order[i] < other->order[i] ? -1 : 1;
    return 0;
}

static const double *used_by(const ring_search *s, int known) {
    return s->used + (size_t)known * (size_t)s->links;
}

static void collect_rings(const ring_search *s, const double *amounts, ring_set *set) {
    set->rings = memory_allocate((size_t)s->count + 1, sizeof *set->rings);
    for (int k = 0; k < s->count; k++) {
        if (amounts[k] < 1e-6)
            continue;
        ring *r = &set->rings[set->count++];
        *r = s->known[k];
        r->bandwidth = amounts[k];
        describe(s, r, used_by(s, k));
        set->total += r->bandwidth;
        for (int l = 0; l < s->links; l++)
            set->load[l] += r->bandwidth * used_by(s, k)[l];
    }
    qsort(set->rings, (size_t)set->count, sizeof *set->rings, compare_rings);
}

/* Channels of one ring go side by side; rings are in the order of their sizes. */
static void collect_channels(const ring_search *s, const int *counts, ring_set *set) {
    set->channels = memory_allocate((size_t)set->channel_count + 1, sizeof *set->channels);
    int channel = 0;
    for (int k = 0; k < s->count; k++)
        for (int i = 0; i < counts[k]; i++) {
            ring *r = &set->channels[channel++];
            *r = s->known[k];
            r->bandwidth = set->channel_speed;
            describe(s, r, used_by(s, k));
        }
    qsort(set->channels, (size_t)channel, sizeof *set->channels, compare_rings);
}

/* Of all sets that carry the most, one that is whole channels is the better one to have: few rings, even numbers. */
static void search_rings(ring_search *s, ring_set *set) {
    const topology *t = s->steps.t;
    double *capacity = memory_allocate((size_t)s->links + 1, sizeof *capacity);
    ring_packing best = {0};
    int *counts = NULL;
    for (int l = 0; l < s->links; l++)
        capacity[l] = t->links[l].bandwidth;
    ring_search_limit(s, SECONDS_FOR_RINGS, INT64_MAX);
    ring_search_pack(s, capacity, &best);
    const int known = s->count;
    ring_search_limit(s, SECONDS_FOR_CHANNELS, WORK_ON_CHANNELS);
    set->channel_count = channels_find(s, &best, &set->channel_speed, &counts);
    best.amounts = memory_grow(best.amounts, (size_t)s->count + 1, sizeof *best.amounts);
    for (int k = 0; k < s->count; k++)
        if (set->channel_count * set->channel_speed >= best.sum * (1 - 1e-9))
            best.amounts[k] = counts[k] * set->channel_speed;
        else if (k >= known)
            best.amounts[k] = 0;
    collect_rings(s, best.amounts, set);
    collect_channels(s, counts, set);
    set->bound = best.bound > set->total * (1 + 1e-6) ? best.bound : set->total;
    memcpy(set->price, best.price, (size_t)s->links * sizeof *set->price);
    ring_packing_free(&best);
    free(counts);
    free(capacity);
}

bool ring_find(const topology *t, int nodes, ring_set *set, error *e) {
    ring_search s;
    *set = (ring_set){.gpus = topology_count(t, TOPOLOGY_GPU)};
    if (!ring_search_start(t, nodes > 1 && set->gpus > 0, &s, e))
        return false;
    set->load = memory_allocate((size_t)t->link_count + 1, sizeof *set->load);
    set->price = memory_allocate((size_t)t->link_count + 1, sizeof *set->price);
    if (set->gpus > (nodes > 1 ? 0 : 1))
        search_rings(&s, set);
    ring_search_free(&s);
    return true;
}

void ring_free(ring_set *set) {
    free(set->rings);
    free(set->channels);
    free(set->load);
    free(set->price);
    *set = (ring_set){0};
}
