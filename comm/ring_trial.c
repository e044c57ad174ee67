#include "comm/ring_trial.h"

#include "comm/patience.h"
#include "engine/checked.h"
#include "engine/device/clear.h"

#include <math.h>
#include <stdlib.h>

enum {
    CHOICES = 2, /* the library's own, those of the file */
    PAIRS = 8,   /* of collectives in a row, as the units of a model follow each other */
    COLLECTIVES = 2 * PAIRS,
    REPEATS_MOST = 200
};

static const double SECONDS = 1;

typedef struct trial {
    world *w;
    device *device;
    collectives *choices[CHOICES];
    double least[CHOICES];
} trial;

/* Both kinds on one buffer, each rank's part in its place, fp32. */
static void list_collectives(const world *w, int group_size, int64_t count, collective list[COLLECTIVES]) {
    const int member = w->rank % group_size;
    const int64_t own = member * count * dtype_bytes(DTYPE_F32);
    for (int32_t i = 0; i < COLLECTIVES; i++) {
        const bool gathers = i % 2 == 0;
        list[i] = (collective){.kind = gathers ? OPERATION_ALL_GATHER : OPERATION_REDUCE_SCATTER,
                               .stream = STREAM_GATHER,
                               .group_first = w->rank - member,
                               .group_stride = 1,
                               .group_size = group_size,
                               .type = DTYPE_F32,
                               .count = count,
                               .input = gathers ? own : 0,
                               .output = gathers ? 0 : own,
                               .event = i,
                               .name = "trial of rings"};
    }
}

static bool open_choices(trial *t, const collectives_settings *settings, int group_size, int64_t count, error *e) {
    collective list[COLLECTIVES];
    list_collectives(t->w, group_size, count, list);
    for (int c = 0; c < CHOICES; c++) {
        collectives_settings chosen = *settings;
        if (c == 0)
            chosen.graph = (ring_graph){0};
        if (!collectives_queued.open(t->w, &chosen, list, COLLECTIVES, &t->choices[c], e))
            return false;
    }
    t->device->functions->reserve(t->device, COLLECTIVES, 2, e);
    return world_agree(t->w, e);
}

/* Seconds of a pair, on the device's clock: from where this rank's stream begins to where all is done. */
static bool time_choice(const trial *t, int choice, double *seconds, error *e) {
    const device_functions *f = t->device->functions;
    collectives *c = t->choices[choice];
    world_barrier(t->w);
    f->stamp(t->device, STREAM_GATHER, 0);
    for (int32_t i = 0; i < COLLECTIVES; i++)
        collectives_issue(c, i);
    f->stamp(t->device, STREAM_GATHER, 1);
    if (!collectives_finish(c, e) || !f->synchronize(t->device, e))
        collectives_fail(c, e);
    if (!world_agree(t->w, e))
        return false;
    *seconds = world_maximum(t->w, f->elapsed(t->device, 0, 1)) / PAIRS;
    return true;
}

/* The first turn of each makes its connections and does not count. */
static bool take_turns(trial *t, int *repeats, error *e) {
    double begun = 0, spent = 0;
    for (int turn = 0; turn <= REPEATS_MOST && spent < SECONDS; turn++) {
        for (int c = 0; c < CHOICES; c++) {
            double seconds;
            if (!time_choice(t, c, &seconds, e))
                return false;
            if (turn > 0)
                t->least[c] = fmin(t->least[c], seconds);
        }
        if (turn == 0)
            begun = patience_clock();
        *repeats = turn;
        spent = turn == 0 ? 0 : world_maximum(t->w, patience_clock() - begun);
    }
    return true;
}

bool ring_trial_measure(world *w, const collectives_settings *settings, int group_size, int64_t bytes,
                        ring_trial *result, error *e) {
    trial t = {.w = w, .device = settings->device, .least = {INFINITY, INFINITY}};
    const int64_t count = maximum(1, bytes / dtype_bytes(DTYPE_F32) / group_size);
    *result = (ring_trial){.bytes = count * group_size * dtype_bytes(DTYPE_F32), .group_size = group_size};
    device_clear(t.device, settings->arena, (size_t)result->bytes);
    if (!open_choices(&t, settings, group_size, count, e) || !take_turns(&t, &result->repeats, e))
        return false; /* the job ends, and communicators of lost ranks cannot be closed */
    for (int c = 0; c < CHOICES; c++)
        collectives_close(t.choices[c]);
    result->own = t.least[0];
    result->given = t.least[1];
    return true;
}

double ring_trial_bandwidth(const ring_trial *t, double seconds) {
    return 2 * (double)t->bytes * (t->group_size - 1) / t->group_size / seconds * 1e-9;
}
