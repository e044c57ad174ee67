#include "comm/hang.h"

#include "engine/checked.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A text of limited size that grows; what does not fit is left out. */
typedef struct text {
    char *start;
    size_t size, used;
} text;

static void append(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append(text *t, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(t->start + t->used, t->size - t->used, format, arguments);
    va_end(arguments);
    t->used = (size_t)minimum((int64_t)t->used + length, (int64_t)t->size - 1);
}

int hang_list_ranks(const bool *among, int size, char *to, size_t to_size) {
    text t = {to, to_size, 0};
    int number = 0;
    to[0] = '\0';
    for (int first = 0, last; first < size; first = last + 1) {
        last = first;
        if (!among[first])
            continue;
        while (last + 1 < size && among[last + 1])
            last++;
        number += last - first + 1;
        append(&t, last > first ? "%s%d-%d" : "%s%d", number > last - first + 1 ? " " : "", first, last);
    }
    return number;
}

static bool same(const hang_report *a, const hang_report *b) {
    return a->state == b->state && a->step == b->step && a->index == b->index && strcmp(a->missing, b->missing) == 0;
}

/* The ranks that report what rank `first` does. */
static int find_same(const hang_report *all, int size, int first, bool *among) {
    int lowest = size;
    for (int r = size - 1; r >= 0; r--) {
        among[r] = same(&all[r], &all[first]);
        lowest = among[r] ? r : lowest;
    }
    return lowest;
}

static void append_place(text *t, const hang_report *r, const collective *list, int32_t count) {
    append(t, "step %lld, %s (%d of %d in launch order)", (long long)r->step, list[r->index].name, r->index + 1, count);
}

static void append_row(text *t, const hang_report *r, const collective *list, int32_t count) {
    switch (r->state) {
    case HANG_WAITS:
        append(t, "waits in ");
        append_place(t, r, list, count);
        append(t, "; missing ranks: %s", r->missing);
        return;
    case HANG_COMPUTES:
        append(t, "computes before ");
        append_place(t, r, list, count);
        return;
    case HANG_MEETS:
        append(t, "waits for the others at the end of step %lld", (long long)r->step);
        return;
    case HANG_LATE:
        append(t, "came later, to ");
        append_place(t, r, list, count);
        return;
    case HANG_SILENT:
        append(t, "no answer; ");
        if (r->index < 0) {
            append(t, "what it did last is not known");
            return;
        }
        append(t, "last seen in ");
        append_place(t, r, list, count);
        return;
    }
}

static void append_rows(text *t, const hang_report *all, int size, const collective *list, int32_t count) {
    bool *among = memory_allocate((size_t)size, sizeof *among);
    char ranks[64];
    for (int r = 0; r < size; r++) {
        if (find_same(all, size, r, among) < r)
            continue;
        const int number = hang_list_ranks(among, size, ranks, sizeof ranks);
        append(t, "\n  rank%s %-12s ", number > 1 ? "s" : " ", ranks);
        append_row(t, &all[r], list, count);
    }
    free(among);
}

int hang_describe(const hang_report *all, int size, const collective *list, int32_t count, double timeout, int first,
                  error *e) {
    bool *missing = memory_allocate((size_t)size, sizeof *missing);
    char ranks[64];
    int speaker = first;
    for (int r = size - 1; r >= 0; r--) {
        missing[r] = all[r].state != HANG_WAITS && all[r].state != HANG_MEETS;
        speaker = missing[r] ? speaker : r;
    }
    const int number = hang_list_ranks(missing, size, ranks, sizeof ranks);
    text t = {e->message, sizeof e->message, 0};
    append(&t, "a collective has not finished within [shard] timeout = %g seconds; ", timeout);
    if (number == 0)
        append(&t, "all ranks wait for each other");
    else
        append(&t, "missing rank%s %s: stuck, or slower than the time-out allows", number > 1 ? "s" : "", ranks);
    append_rows(&t, all, size, list, count);
    e->code = EXIT_LAUNCH;
    e->own = false;
    free(missing);
    return speaker;
}
