#include "shard/flat.h"

#include "engine/checked.h"

#include <stdlib.h>

/* Parameters start at 256 bytes, in 16-bit formats too. A unit has some thousands of granules if it can, so that
 * padding to equal shards stays small at a thousand ranks. */
enum { PARAMETER_ALIGNMENT = 128, GRANULE_LEAST = 64, GRANULES_WANTED = 4096, GRANULE_MOST = 65536 };

static int64_t granule_for(int64_t elements) {
    int64_t granule = GRANULE_LEAST;
    while (granule < GRANULE_MOST && granule * 2 * GRANULES_WANTED <= elements)
        granule *= 2;
    return granule;
}

/* The list is sorted by unit: a unit's parameters start where those of the unit before it end. */
static void lay_out(flat_layout *l, const parameter_list *list, int32_t unit) {
    flat_unit *u = &l->units[unit];
    u->first_parameter = unit > 0 ? l->units[unit - 1].first_parameter + l->units[unit - 1].parameters : 0;
    for (int32_t i = u->first_parameter; i < list->count && list->items[i].unit == unit; i++) {
        u->parameters++;
        l->offsets[i] = round_up(u->elements, PARAMETER_ALIGNMENT);
        u->elements = l->offsets[i] + parameter_elements(&list->items[i]);
    }
    u->granule = granule_for(u->elements);
    u->granules = divide_up(u->elements, u->granule);
    u->per_rank = divide_up(u->granules, l->group_size);
    u->shard = must_multiply(u->per_rank, u->granule);
    u->whole = must_multiply(u->shard, l->group_size);
    u->column = l->columns;
    l->columns += u->per_rank;
}

flat_layout *flat_layout_create(const parameter_list *list, int group_size, int group_rank) {
    flat_layout *l = memory_allocate(1, sizeof *l);
    l->unit_count = list->unit_count;
    l->units = memory_allocate((size_t)list->unit_count, sizeof *l->units);
    l->offsets = memory_allocate((size_t)list->count, sizeof *l->offsets);
    l->group_size = group_size;
    l->group_rank = group_rank;
    for (int32_t unit = 0; unit < list->unit_count; unit++)
        lay_out(l, list, unit);
    return l;
}

void flat_layout_destroy(flat_layout *l) {
    if (l == NULL)
        return;
    free(l->units);
    free(l->offsets);
    free(l);
}

flat_slice flat_slice_of(const flat_layout *l, const parameter_list *list, int group_rank, int32_t index) {
    const parameter *p = &list->items[index];
    const flat_unit *u = &l->units[p->unit];
    const int64_t shard_begin = u->shard * group_rank, begin = l->offsets[index];
    const int64_t from = maximum(begin, shard_begin);
    const int64_t to = minimum(begin + parameter_elements(p), shard_begin + u->shard);
    if (from >= to)
        return (flat_slice){0, 0, 0};
    return (flat_slice){from - begin, to - from, from - shard_begin};
}

segment *flat_segments(const flat_layout *l, const parameter_list *list, int32_t unit, int64_t *count) {
    const flat_unit *u = &l->units[unit];
    segment *segments = memory_allocate((size_t)u->parameters, sizeof *segments);
    *count = 0;
    for (int32_t i = u->first_parameter; i < u->first_parameter + u->parameters; i++) {
        const flat_slice slice = flat_slice_of(l, list, l->group_rank, i);
        if (slice.count > 0)
            segments[(*count)++] = (segment){slice.at, slice.count, list->items[i].decay};
    }
    return segments;
}
