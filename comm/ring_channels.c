#include "comm/ring_channels.h"

#include "engine/checked.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct candidate {
    double speed, value; /* value: no set of channels of this speed is worth more */
} candidate;

enum { PARTS_MOST = 8, CANDIDATES_MOST = 400 };

/* What channels carry, less what they cost: each one more than are needed takes processors from the computation, and
 * one channel is not good for more than the liked speed. */
static double value_of(double channels, double speed, double best) {
    const double more = channels - ceil(best / CHANNEL_SPEED_LIKED);
    return channels * speed * (1 - 0.003 * (more > 0 ? more : 0)) * (speed > CHANNEL_SPEED_LIKED ? 0.99 : 1);
}

/* The largest value first, then the fewest channels. */
static int compare_candidates(const void *a, const void *b) {
    const candidate *one = a, *other = b;
    if (fabs(one->value - other->value) > 1e-6 * one->value)
        return one->value > other->value ? -1 : 1;
    return (one->speed < other->speed) - (one->speed > other->speed);
}

static void consider(candidate *list, int *count, double speed, double best) {
    for (int i = 0; i < *count; i++)
        if (fabs(list[i].speed - speed) < 1e-9 * speed)
            return;
    const double whole = floor(best / speed * (1 + 1e-9)), channels = whole < CHANNELS_MOST ? whole : CHANNELS_MOST;
    if (*count < CANDIDATES_MOST && channels >= 1)
        list[(*count)++] = (candidate){speed, value_of(channels, speed, best)};
}

/* Speeds that divide the sum, or what a link holds for a ring. */
static int list_candidates(const ring_search *s, double best, candidate *list) {
    int count = 0;
    for (int parts = 1; parts <= CHANNELS_MOST; parts++)
        consider(list, &count, best / parts, best);
    for (int k = 0; k < s->count; k++)
        for (int l = 0; l < s->links; l++) {
            const double used = s->used[(size_t)k * (size_t)s->links + (size_t)l];
            for (int parts = 1; used > 0 && parts <= PARTS_MOST; parts++)
                consider(list, &count, s->steps.t->links[l].bandwidth / used / parts, best);
        }
    qsort(list, (size_t)count, sizeof *list, compare_candidates);
    return count;
}

/* How many channels of ring k the links have room for. */
static int room_for(const ring_search *s, int k, const double *left) {
    double most = CHANNELS_MOST;
    for (int l = 0; l < s->links; l++) {
        const double used = s->used[(size_t)k * (size_t)s->links + (size_t)l];
        if (used > 0 && left[l] / used < most)
            most = left[l] / used;
    }
    return (int)floor(most + 1e-9);
}

/* Where every ring takes whole numbers of a link's bandwidth in channels, the fraction that is left over is of no use.
 */
static void round_down(const ring_search *s, double *left) {
    for (int l = 0; l < s->links; l++) {
        bool whole = true;
        for (int k = 0; whole && k < s->count; k++) {
            const double used = s->used[(size_t)k * (size_t)s->links + (size_t)l];
            whole = fabs(used - round(used)) < 1e-9;
        }
        if (whole)
            left[l] = floor(left[l] + 1e-9);
    }
}

/* The ring that the packing takes most of and that has room, and how many channels of it: the whole ones, or one. */
static int choose(const ring_search *s, const ring_packing *packing, const double *left, int *channels) {
    int chosen = -1;
    for (int k = 0; k < s->count; k++)
        if (packing->amounts[k] > 1e-6 && (chosen < 0 || packing->amounts[k] > packing->amounts[chosen] + 1e-9) &&
            room_for(s, k, left) >= 1)
            chosen = k;
    if (chosen >= 0) {
        const double whole = floor(packing->amounts[chosen] + 1e-6);
        *channels = whole > 1 ? (int)whole : 1;
    }
    return chosen;
}

static void take(const ring_search *s, int k, int channels, double *left) {
    for (int l = 0; l < s->links; l++)
        left[l] -= channels * s->used[(size_t)k * (size_t)s->links + (size_t)l];
}

/* Solves, takes the ring that is largest, and again with what is left. */
static int dive(ring_search *s, double speed, int **counts) {
    double *left = memory_allocate((size_t)s->links + 1, sizeof *left);
    ring_packing packing = {0};
    int sum = 0, known = 0;
    for (int l = 0; l < s->links; l++)
        left[l] = s->steps.t->links[l].bandwidth / speed;
    while (sum < CHANNELS_MOST) {
        int channels = 0;
        round_down(s, left);
        ring_search_pack(s, left, &packing);
        const int chosen = choose(s, &packing, left, &channels);
        if (chosen < 0)
            break;
        *counts = memory_grow(*counts, (size_t)s->count + 1, sizeof **counts);
        for (; known < s->count; known++)
            (*counts)[known] = 0;
        const int room = room_for(s, chosen, left);
        channels = channels < room ? channels : room;
        channels = channels < CHANNELS_MOST - sum ? channels : CHANNELS_MOST - sum;
        (*counts)[chosen] += channels;
        sum += channels;
        take(s, chosen, channels, left);
    }
    *counts = memory_grow(*counts, (size_t)s->count + 1, sizeof **counts);
    for (; known < s->count; known++)
        (*counts)[known] = 0;
    ring_packing_free(&packing);
    free(left);
    return sum;
}

typedef struct choice {
    int *counts;
    int known, channels; /* known: how many counts there are */
    double speed, value;
} choice;

/* Keeps the better one; counts become the choice's or are freed. */
static void weigh(choice *kept, int *counts, int known, int channels, double speed, double best) {
    const double value = value_of(channels, speed, best);
    if (channels == 0 || value <= kept->value * (1 + 1e-6)) {
        free(counts);
        return;
    }
    free(kept->counts);
    *kept = (choice){counts, known, channels, speed, value};
}

/* Whole channels of what the best packing takes of each ring. */
static void weigh_rounded(const ring_search *s, const double *amounts, double speed, double best, choice *kept) {
    int *counts = memory_allocate((size_t)s->count + 1, sizeof *counts), sum = 0;
    for (int k = 0; k < s->count; k++) {
        const double whole = floor(amounts[k] / speed * (1 + 1e-9));
        counts[k] = whole < CHANNELS_MOST - sum ? (int)whole : CHANNELS_MOST - sum;
        sum += counts[k];
    }
    weigh(kept, counts, s->count, sum, speed, best);
}

static void consider_amounts(const ring_search *s, const double *amounts, double best, candidate *list, int *count) {
    for (int k = 0; k < s->count; k++)
        for (int parts = 1; amounts[k] > 1e-6 && parts <= PARTS_MOST; parts++)
            consider(list, count, amounts[k] / parts, best);
}

int channels_find(ring_search *s, const ring_packing *packing, double *speed, int **counts) {
    candidate list[CANDIDATES_MOST];
    choice kept = {0};
    int rounded = 0;
    consider_amounts(s, packing->amounts, packing->sum, list, &rounded);
    for (int i = 0; i < rounded; i++)
        weigh_rounded(s, packing->amounts, list[i].speed, packing->sum, &kept);
    const int candidates = list_candidates(s, packing->sum, list);
    const int64_t work = s->work;
    for (int searching = 0; searching <= 1; searching++) { /* among known rings first, which is quick */
        s->work = searching ? work : 0;
        for (int i = 0; i < candidates && list[i].value > kept.value * (1 + 1e-6); i++) {
            int *trial = NULL;
            if (ring_search_out_of_time(s) || (searching && s->work <= 0))
                break;
            const int channels = dive(s, list[i].speed, &trial);
            weigh(&kept, trial, s->count, channels, list[i].speed, packing->sum);
        }
    }
    *counts = memory_grow(kept.counts, (size_t)s->count + 1, sizeof **counts);
    for (int k = kept.known; k < s->count; k++)
        (*counts)[k] = 0;
    *speed = kept.speed;
    return kept.channels;
}
