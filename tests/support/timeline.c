#include "support/timeline.h"

#include "engine/checked.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 5 }; /* the step and four streams */

typedef struct slice {
    int64_t rank, row, begin, end; /* nanoseconds */
} slice;

typedef struct timeline {
    json_t *events;
    slice *slices;
    int64_t count;
    int ranks;
    error *e;
} timeline;

static int64_t nanoseconds(const json_t *event, const char *name) {
    return llround(json_number_value(json_object_get(event, name)) * 1000);
}

static const char *text(const json_t *event, const char *name) {
    const char *found = json_string_value(json_object_get(event, name));
    return found == NULL ? "" : found;
}

static int64_t whole(const json_t *event, const char *name) {
    return json_integer_value(json_object_get(event, name));
}

static bool wrong(const timeline *t, const char *what, const json_t *event) {
    char *shown = json_dumps(event, JSON_COMPACT);
    error_set(t->e, EXIT_INTERNAL, "%s: %s", what, shown);
    free(shown);
    return false;
}

static bool has_fields(const timeline *t, const json_t *event) {
    const char *type = text(event, "ph");
    const bool meta = strcmp(type, "M") == 0, is_slice = strcmp(type, "X") == 0;
    const bool is_arrow = strcmp(type, "s") == 0 || strcmp(type, "f") == 0;
    if (!meta && !is_slice && !is_arrow)
        return wrong(t, "unknown type", event);
    if (whole(event, "pid") < 0 || whole(event, "pid") >= t->ranks || whole(event, "tid") < 0 ||
        whole(event, "tid") >= ROWS || text(event, "name")[0] == '\0')
        return wrong(t, "no name, rank or row", event);
    const json_t *arguments = json_object_get(event, "args");
    if (!is_arrow && !json_is_object(arguments))
        return wrong(t, "no arguments", event);
    if (!meta && (!json_is_number(json_object_get(event, "ts")) || text(event, "cat")[0] == '\0'))
        return wrong(t, "no time or category", event);
    if (is_arrow && !json_is_integer(json_object_get(event, "id")))
        return wrong(t, "no id", event);
    if (is_slice && (nanoseconds(event, "ts") < 0 || nanoseconds(event, "dur") < 0 || whole(arguments, "step") < 1))
        return wrong(t, "no duration or step", event);
    const bool is_operation = json_object_get(arguments, "bytes") != NULL;
    if (is_operation &&
        (!json_is_integer(json_object_get(arguments, "flops")) || text(arguments, "unit")[0] == '\0' ||
         text(arguments, "phase")[0] == '\0' || !json_is_integer(json_object_get(arguments, "micro_batch"))))
        return wrong(t, "an operation without unit, phase or costs", event);
    return true;
}

static int by_place(const void *a, const void *b) {
    const slice *x = a, *y = b;
    if (x->rank != y->rank || x->row != y->row)
        return x->rank != y->rank ? (x->rank > y->rank) - (x->rank < y->rank) : (x->row > y->row) - (x->row < y->row);
    return x->begin != y->begin ? (x->begin > y->begin) - (x->begin < y->begin) : (x->end > y->end) - (x->end < y->end);
}

static void collect_slices(timeline *t) {
    size_t i;
    json_t *event;
    t->slices = memory_allocate(json_array_size(t->events), sizeof *t->slices);
    json_array_foreach(t->events, i, event) {
        const int64_t begin = nanoseconds(event, "ts");
        if (strcmp(text(event, "ph"), "X") == 0)
            t->slices[t->count++] =
                (slice){whole(event, "pid"), whole(event, "tid"), begin, begin + nanoseconds(event, "dur")};
    }
    qsort(t->slices, (size_t)t->count, sizeof *t->slices, by_place);
}

static bool no_overlap(const timeline *t) {
    for (int64_t i = 1; i < t->count; i++) {
        const slice *before = &t->slices[i - 1], *s = &t->slices[i];
        if (s->rank == before->rank && s->row == before->row && s->begin < before->end)
            return error_set(t->e, EXIT_INTERNAL, "row %lld of rank %lld: a slice starts at %lld ns, before %lld",
                             (long long)s->row, (long long)s->rank, (long long)s->begin, (long long)before->end);
    }
    return true;
}

/* Whether a slice of the event's row begins at its time or, unless at_start, holds it. */
static bool touches_slice(const timeline *t, const json_t *event, bool at_start) {
    const int64_t at = nanoseconds(event, "ts");
    for (int64_t i = 0; i < t->count; i++) {
        const slice *s = &t->slices[i];
        if (s->rank == whole(event, "pid") && s->row == whole(event, "tid") &&
            (at_start ? s->begin == at : s->begin <= at && at <= s->end))
            return true;
    }
    return false;
}

/* Arrows are written as pairs, so that the end stands behind its start. */
static bool arrows_lead_forward(const timeline *t) {
    json_t *ids = json_object();
    bool good = true;
    for (size_t i = 0; i < json_array_size(t->events) && good; i++) {
        const json_t *from = json_array_get(t->events, i), *to = json_array_get(t->events, i + 1);
        if (strcmp(text(from, "ph"), "s") != 0)
            continue;
        char *id = memory_format("%lld", (long long)whole(from, "id"));
        if (to == NULL || strcmp(text(to, "ph"), "f") != 0 || whole(from, "id") != whole(to, "id"))
            good = wrong(t, "an arrow without an end", from);
        else if (json_object_get(ids, id) != NULL)
            good = wrong(t, "an id that another arrow has", from);
        else if (nanoseconds(from, "ts") > nanoseconds(to, "ts") || whole(from, "tid") == whole(to, "tid"))
            good = wrong(t, "an arrow that leads nowhere", from);
        else if (!touches_slice(t, from, false) || !touches_slice(t, to, true))
            good = wrong(t, "an arrow without a slice", from);
        json_object_set_new(ids, id, json_true());
        free(id);
    }
    json_decref(ids);
    return good;
}

/* Of one step of one rank: its share of exposed communication, and the exposed slices, in seconds. */
static bool shares_add_up(const timeline *t, int rank, int64_t step, int64_t *slices) {
    double share = -1, shares = 0, seconds = 0, exposed = 0;
    size_t i;
    json_t *event;
    json_array_foreach(t->events, i, event) {
        const json_t *arguments = json_object_get(event, "args");
        if (strcmp(text(event, "ph"), "X") != 0 || whole(event, "pid") != rank || whole(arguments, "step") != step)
            continue;
        ++*slices;
        if (strcmp(text(event, "cat"), "exposed") == 0)
            exposed += 1e-9 * (double)nanoseconds(event, "dur");
        if (strcmp(text(event, "cat"), "step") == 0) {
            share = json_real_value(json_object_get(arguments, "exposed"));
            shares = share + json_real_value(json_object_get(arguments, "compute")) +
                     json_real_value(json_object_get(arguments, "idle"));
            seconds = 1e-9 * (double)nanoseconds(event, "dur");
        }
    }
    /* Each slice was rounded to a nanosecond at either end. */
    const double rounding = 1e-9 * (double)(*slices + 4);
    if (share < 0 || fabs(share - exposed) > rounding || fabs(shares - seconds) > rounding)
        return error_set(t->e, EXIT_INTERNAL, "rank %d, step %lld: %.9f s exposed, of slices %.9f; shares %.9f of %.9f",
                         rank, (long long)step, share, exposed, shares, seconds);
    return true;
}

static bool steps_are_alike(const timeline *t, int64_t first, int64_t last) {
    int64_t all = 0;
    for (int rank = 0; rank < t->ranks; rank++)
        for (int64_t step = first; step <= last; step++) {
            int64_t slices = 0;
            if (!shares_add_up(t, rank, step, &slices))
                return false;
            all += slices;
        }
    if (all != t->count)
        return error_set(t->e, EXIT_INTERNAL, "%lld slices are of other ranks or steps", (long long)(t->count - all));
    return true;
}

static void count(const timeline *t, timeline_facts *facts) {
    size_t i;
    json_t *event;
    *facts = (timeline_facts){.slices = t->count};
    json_array_foreach(t->events, i, event) {
        facts->arrows += strcmp(text(event, "ph"), "s") == 0;
        facts->exposed += strcmp(text(event, "cat"), "exposed") == 0;
        facts->collectives += strcmp(text(event, "ph"), "X") == 0 && strncmp(text(event, "name"), "all_", 4) == 0;
    }
}

bool timeline_check(const char *path, int ranks, int64_t first, int64_t last, timeline_facts *facts, error *e) {
    json_error_t problem;
    json_t *top = json_load_file(path, JSON_REJECT_DUPLICATES, &problem), *event;
    timeline t = {.events = json_object_get(top, "traceEvents"), .ranks = ranks, .e = e};
    if (!json_is_array(t.events))
        return error_set(e, EXIT_INTERNAL, "%s:%d: %s", path, problem.line, problem.text);
    bool good = true;
    size_t i;
    json_array_foreach(t.events, i, event) good = good && has_fields(&t, event);
    collect_slices(&t);
    good = good && no_overlap(&t) && arrows_lead_forward(&t) && steps_are_alike(&t, first, last);
    count(&t, facts);
    free(t.slices);
    json_decref(top);
    return good;
}
