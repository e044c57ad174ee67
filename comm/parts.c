#include "comm/parts.h"

#include "engine/checked.h"

#include <stdio.h>
#include <stdlib.h>

enum { SLICE_ELEMENTS = 16, SLOT_ALIGNMENT = 64 };

int64_t part_start(const collective *o, int member) {
    if (o->kind != OPERATION_ALL_REDUCE)
        return member * o->count;
    return minimum(member * round_up(divide_up(o->count, o->group_size), SLICE_ELEMENTS), o->count);
}

int64_t part_count(const collective *o, int member) {
    return part_start(o, member + 1) - part_start(o, member);
}

bool part_in_place(const collective *o, int member) {
    int64_t place = part_start(o, member) * dtype_bytes(o->type);
    return (o->kind == OPERATION_ALL_GATHER && o->input == o->output + place) ||
           (o->kind == OPERATION_REDUCE_SCATTER && o->type == DTYPE_F32 && o->output == o->input + place);
}

int64_t slot_bytes(const collective *o) {
    return round_up(must_multiply(part_count(o, 0), dtype_bytes(o->type)), SLOT_ALIGNMENT);
}

bool is_near(const world *w, transport how, int rank) {
    return rank == w->rank || (how != TRANSPORT_MESSAGES && w->node_of[rank] == w->node);
}

static void check_one(const world *w, const collective *o, int64_t arena_bytes) {
    bool whole_input = sums(o), whole_output = o->kind != OPERATION_REDUCE_SCATTER;
    int64_t part = must_multiply(o->count, dtype_bytes(o->type)),
            shard = must_multiply(o->count, dtype_bytes(DTYPE_F32));
    int64_t whole = must_multiply(part, o->kind == OPERATION_ALL_REDUCE ? 1 : o->group_size);
    int member = member_of(o, w->rank);
    check(member >= 0 && member < o->group_size && rank_of(o, member) == w->rank, "%s: not in the group", o->name);
    check(o->stream >= 0 && o->stream < COLLECTIVE_STREAMS, "%s: stream %d", o->name, o->stream);
    check(!sums(o) || o->type == DTYPE_F32 || o->type == DTYPE_BF16, "%s: sums of %s", o->name, dtype_name(o->type));
    check(!sums(o) || o->odd == 0 || (o->odd > 0 && o->group_size % o->odd == 0), "%s: runs of %d ranks", o->name,
          o->odd);
    check(!o->accumulate || o->kind == OPERATION_REDUCE_SCATTER, "%s: only a reduce_scatter accumulates", o->name);
    check(o->input >= 0 && o->input <= arena_bytes - (whole_input ? whole : part), "%s: input outside arena", o->name);
    check(o->output >= 0 && o->output <= arena_bytes - (whole_output ? whole : shard), "%s: output outside arena",
          o->name);
}

void parts_check(const world *w, const collective *list, int32_t count, const device_memory *arena) {
    for (int32_t i = 0; i < count; i++)
        check_one(w, &list[i], (int64_t)arena->bytes);
}

static uint64_t digest_number(uint64_t digest, int64_t number) { /* FNV-1a over the bytes of a number */
    for (int byte = 0; byte < 8; byte++)
        digest = (digest ^ ((uint64_t)number >> (8 * byte) & 0xff)) * UINT64_C(0x100000001b3);
    return digest;
}

static uint64_t digest_of_one(const world *w, const collective *o) {
    bool in_place = part_in_place(o, member_of(o, w->rank)), gathers = o->kind == OPERATION_ALL_GATHER;
    int64_t input = in_place && gathers ? o->output : o->input;
    int64_t output = in_place && !gathers ? o->input : o->output;
    const int64_t fields[] = {o->kind,  o->stream, o->group_stride, o->group_size, o->type,
                              o->count, input,     output,          o->accumulate, o->odd};
    uint64_t digest = UINT64_C(0xcbf29ce484222325);
    for (size_t f = 0; f < sizeof fields / sizeof *fields; f++)
        digest = digest_number(digest, fields[f]);
    return digest;
}

static uint64_t digest_of(const world *w, const collective *list, int32_t count) {
    uint64_t digest = digest_number(UINT64_C(0xcbf29ce484222325), count);
    for (int32_t i = 0; i < count; i++)
        digest = digest_number(digest, (int64_t)digest_of_one(w, &list[i]));
    return digest;
}

/* The first rank whose value differs from rank 0's; the world's size: none does. */
static int first_other(world *w, uint64_t mine) {
    uint64_t *all = memory_allocate((size_t)w->size, sizeof *all);
    world_all_gather(w, &mine, sizeof mine, all);
    int other = 0;
    while (other < w->size && all[other] == all[0])
        other++;
    free(all);
    return other;
}

typedef struct entry_name {
    char text[128];
} entry_name;

/* The ranks go through their lists together up to the first entry in which one differs from rank 0; a list that has
 * ended has nothing there. */
static bool describe_difference(world *w, const collective *list, int32_t count, error *e) {
    entry_name mine, *all = memory_allocate((size_t)w->size, sizeof *all);
    int32_t i = 0;
    int other = w->size;
    for (; other == w->size; i++)
        other = first_other(w, i < count ? digest_of_one(w, &list[i]) : 0);
    if (i <= count)
        snprintf(mine.text, sizeof mine.text, "%s (%lld elements)", list[i - 1].name, (long long)list[i - 1].count);
    else
        snprintf(mine.text, sizeof mine.text, "nothing");
    world_all_gather(w, &mine, sizeof mine, all);
    error_set(
        e, EXIT_LAUNCH,
        "rank %d planned another step than rank 0: collective %d in launch order is %s there and %s on rank 0; the "
        "same program, config and data must run on every rank; where GPUs differ, device.fuse = no makes the steps "
        "alike",
        other, i, all[other].text, all[0].text);
    free(all);
    return false;
}

bool parts_agree(world *w, const collective *list, int32_t count, error *e) {
    return first_other(w, digest_of(w, list, count)) == w->size || describe_difference(w, list, count, e);
}
