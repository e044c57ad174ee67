#include "launch/scaling.h"

#include "engine/checked.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

const char *scaling_term_name(scaling_term t) {
    static const char *const names[] = {
        [TERM_COMPUTE] = "compute",       [TERM_SLOWER] = "slower compute", [TERM_IMBALANCE] = "imbalance",
        [TERM_GATHER] = "exposed gather", [TERM_REDUCE] = "exposed reduce", [TERM_OTHER] = "other"};
    return names[t];
}

/* ---- a run's metrics ---- */

typedef struct step_list {
    scaling_run *steps;
    size_t count;
} step_list;

/* A number of a step event; false: it is null or absent. */
static bool number_of(const json_t *event, const char *name, double *value) {
    const json_t *found = json_object_get(event, name);
    *value = json_number_value(found);
    return json_is_number(found);
}

/* A line that is no step is passed over. */
static bool read_line(const char *line, const char *path, int skipped, step_list *list, error *e) {
    json_t *event = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    const char *kind = json_string_value(json_object_get(event, "event"));
    bool good = true;
    if (kind != NULL && strcmp(kind, "step") == 0 && json_integer_value(json_object_get(event, "step")) > skipped) {
        scaling_run s = {.slowest = (int)json_integer_value(json_object_get(event, "slowest"))};
        double rate = 0, imbalance = 0;
        good = number_of(event, "seconds", &s.seconds) && number_of(event, "tokens_per_second", &rate) &&
               number_of(event, "compute", &s.compute) && number_of(event, "imbalance", &imbalance) &&
               number_of(event, "exposed_gather", &s.gather) && number_of(event, "exposed_reduce", &s.reduce) &&
               number_of(event, "idle", &s.other);
        if (!good)
            error_set(e, EXIT_INTERNAL, "%s: a step says not what it waited for: %.200s", path, line);
        s.tokens = rate * s.seconds;
        s.slowest_compute = imbalance * s.compute;
        list->steps = memory_grow(list->steps, list->count + 1, sizeof s);
        list->steps[list->count++] = s;
    }
    json_decref(event);
    return good;
}

static bool read_steps(const char *path, int skipped, step_list *list, error *e) {
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t size = 0;
    bool good = true;
    if (file == NULL)
        return error_set(e, EXIT_INTERNAL, "%s: cannot open: %s", path, strerror(errno));
    while (good && getline(&line, &size, file) > 0)
        good = read_line(line, path, skipped, list, e);
    free(line);
    fclose(file);
    return good;
}

static int by_seconds(const void *a, const void *b) {
    const double x = ((const scaling_run *)a)->seconds, y = ((const scaling_run *)b)->seconds;
    return (x > y) - (x < y);
}

static void find_slowest(const step_list *list, scaling_run *run) {
    size_t most = 0;
    for (size_t i = 0; i < list->count; i++) {
        size_t times = 0;
        for (size_t k = 0; k < list->count; k++)
            times += list->steps[k].slowest == list->steps[i].slowest;
        if (times > most) {
            most = times;
            run->slowest = list->steps[i].slowest;
        }
    }
    run->slowest_share = (double)most / (double)list->count;
}

/* Of steps in the order of their seconds: the middle half, averaged. */
static scaling_run average(const step_list *list) {
    scaling_run sum = {0};
    const size_t first = list->count / 4, end = list->count - first;
    for (size_t i = first; i < end; i++) {
        const scaling_run *s = &list->steps[i];
        const double share = 1 / (double)(end - first);
        sum.seconds += share * s->seconds;
        sum.tokens += share * s->tokens;
        sum.compute += share * s->compute;
        sum.slowest_compute += share * s->slowest_compute;
        sum.gather += share * s->gather;
        sum.reduce += share * s->reduce;
        sum.other += share * s->other;
    }
    return sum;
}

bool scaling_read(const char *path, int skipped, scaling_run *run, error *e) {
    step_list list = {0};
    bool good = read_steps(path, skipped, &list, e);
    if (good && list.count == 0)
        good = error_set(e, EXIT_INTERNAL, "%s: no steps behind the first %d", path, skipped);
    if (good) {
        qsort(list.steps, list.count, sizeof *list.steps, by_seconds);
        *run = average(&list);
        find_slowest(&list, run);
    }
    free(list.steps);
    return good;
}

/* ---- counts side by side ---- */

static scaling_run median_of(const scaling_point *p, int repeats) {
    scaling_run *sorted = memory_allocate((size_t)repeats, sizeof *sorted);
    memcpy(sorted, p->runs, (size_t)repeats * sizeof *sorted);
    qsort(sorted, (size_t)repeats, sizeof *sorted, by_seconds);
    const scaling_run median = sorted[(repeats - 1) / 2];
    free(sorted);
    return median;
}

/* Of the smallest count's seconds, what the ideal leaves of them at this one. */
static double ideal_share(const scaling *s, const scaling_point *p) {
    return s->weak ? 1 : (double)s->points[0].ranks / p->ranks;
}

static void take_apart(const scaling *s, scaling_point *p) {
    const scaling_point *first = &s->points[0];
    const scaling_run *m = &p->median;
    const double share = ideal_share(s, p);
    p->terms[TERM_COMPUTE] = first->median.compute * share;
    p->terms[TERM_SLOWER] = m->compute - p->terms[TERM_COMPUTE];
    p->terms[TERM_IMBALANCE] = m->slowest_compute - m->compute;
    p->terms[TERM_GATHER] = m->gather;
    p->terms[TERM_REDUCE] = m->reduce;
    p->terms[TERM_OTHER] = m->other;
    p->ideal = first->median.seconds * share;
    for (int t = 0; t < TERM_COUNT; t++)
        p->lost[t] = p->terms[t] - first->terms[t] * share;
}

static void compare_runs(const scaling *s, scaling_point *p) {
    const scaling_point *first = &s->points[0];
    const double share = ideal_share(s, p);
    p->efficiency = p->ideal / p->median.seconds;
    p->speed_up = p->efficiency * p->ranks / first->ranks;
    for (int r = 0; r < s->repeats; r++) {
        const double efficiency = first->runs[r].seconds * share / p->runs[r].seconds;
        p->lowest = r == 0 || efficiency < p->lowest ? efficiency : p->lowest;
        p->highest = r == 0 || efficiency > p->highest ? efficiency : p->highest;
    }
}

void scaling_compare(scaling *s) {
    for (int i = 0; i < s->count; i++)
        s->points[i].median = median_of(&s->points[i], s->repeats);
    for (int i = 0; i < s->count; i++) {
        take_apart(s, &s->points[i]);
        compare_runs(s, &s->points[i]);
    }
}

double scaling_closure(const scaling_point *p) {
    double sum = 0;
    for (int t = 0; t < TERM_COUNT; t++)
        sum += p->terms[t];
    return sum / p->median.seconds;
}
