#include "engine/ranges.h"

#include "engine/checked.h"

#include <stdlib.h>

struct ranges {
    const program *p;
    device *d;
    /* [operations]: the name of the stretch that begins there in the list's order (NULL: the one before goes on), and
     * the operation at which the stretch that it belongs to begins. */
    char **names;
    int32_t *stretch;
    int32_t open; /* the stretch under way; NO_OPERATION: none */
};

static bool go_together(const operation *a, const operation *b) {
    return a->phase == b->phase && a->unit == b->unit && a->pass == b->pass;
}

ranges *ranges_create(const program *p, device *d) {
    if (d->functions->begin_range == NULL)
        return NULL;
    ranges *r = memory_allocate(1, sizeof *r);
    *r = (ranges){.p = p, .d = d, .open = NO_OPERATION};
    r->names = memory_allocate((size_t)p->operation_count, sizeof *r->names);
    r->stretch = memory_allocate((size_t)p->operation_count, sizeof *r->stretch);
    for (int32_t i = 0; i < p->operation_count; i++) {
        const operation *o = &p->operations[i];
        r->stretch[i] = i > 0 && go_together(o, &p->operations[i - 1]) ? r->stretch[i - 1] : i;
        if (r->stretch[i] == i)
            r->names[i] = memory_format("%s %s, pass %d", phase_name(o->phase),
                                        o->unit == NO_UNIT ? "all units" : p->unit_names[o->unit], o->pass);
    }
    return r;
}

void ranges_destroy(ranges *r) {
    if (r == NULL)
        return;
    for (int32_t i = 0; i < r->p->operation_count; i++)
        free(r->names[i]);
    free(r->names);
    free(r->stretch);
    free(r);
}

void ranges_begin(ranges *r, int32_t operation) {
    if (r == NULL)
        return;
    if (r->open != r->stretch[operation]) {
        ranges_close(r);
        r->open = r->stretch[operation];
        r->d->functions->begin_range(r->d, r->names[r->open]);
    }
    r->d->functions->begin_range(r->d, operation_signature_of(r->p->operations[operation].kind)->name);
}

void ranges_end(ranges *r) {
    if (r != NULL)
        r->d->functions->end_range(r->d);
}

void ranges_close(ranges *r) {
    if (r == NULL || r->open == NO_OPERATION)
        return;
    r->d->functions->end_range(r->d);
    r->open = NO_OPERATION;
}
