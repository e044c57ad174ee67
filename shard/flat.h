/* Who owns what: the flat parameter of each unit and its division into shards.
 *
 * A unit's parameters are laid end to end, each starting at 256 bytes in every format (a layout counts in elements and
 * is the same for all of them). The flat parameter is cut into granules of a
 * power of two of elements that depends on the unit's size alone; a rank owns a run of granules, the same number on
 * every rank of a shard group. What does not divide is padding at the end, never read as data. */
#ifndef FSDP_SHARD_FLAT_H
#define FSDP_SHARD_FLAT_H

#include "engine/device/operation.h"
#include "engine/parameter.h"

typedef struct flat_unit {
    int32_t first_parameter, parameters; /* run of the parameter list */
    int64_t elements;                    /* up to the end of the last parameter, gaps included */
    int64_t granule, granules;           /* elements of a granule; how many hold parameters */
    int64_t per_rank;                    /* granules of each rank's shard */
    int64_t shard;                       /* elements of a shard: granule * per_rank */
    int64_t whole;                       /* elements of all shards: shard * group size */
    int64_t column; /* granules of a rank's shards of the units before: see engine/device/update.h */
} flat_unit;

typedef struct flat_layout {
    int32_t unit_count;
    flat_unit *units;
    int64_t *offsets; /* [parameters]: element offset of each parameter in its unit's flat parameter */
    int64_t columns;  /* granules of a rank's shards of all units */
    int group_size;   /* ranks in a shard group */
    int group_rank;   /* this rank's place in it */
} flat_layout;

flat_layout *flat_layout_create(const parameter_list *list, int group_size, int group_rank);
void flat_layout_destroy(flat_layout *l);

/* The part of parameter `index` that the shard of any rank of the group holds: elements first .. first + count of the
 * parameter, at `at` elements from the shard's start. count is 0 when the shard holds none of it. */
typedef struct flat_slice {
    int64_t first, count, at;
} flat_slice;
flat_slice flat_slice_of(const flat_layout *l, const parameter_list *list, int group_rank, int32_t index);

/* Segments of layout->group_rank's shard of a unit, ascending, one per parameter that it holds a part of; freed by the
 * caller.
 * *count may be 0 (an empty shard). */
segment *flat_segments(const flat_layout *l, const parameter_list *list, int32_t unit, int64_t *count);

#endif
