#include "engine/turn.h"

#include "engine/checked.h"

turn *turns_of(const program *p, int32_t *count) {
    turn *turns = memory_allocate((size_t)p->operation_count, sizeof *turns);
    *count = 0;
    for (int32_t i = 0; i < p->operation_count; i++) {
        const operation *o = &p->operations[i];
        if (o->stream != STREAM_COMPUTE || o->phase == PHASE_UPDATE || o->kind == OPERATION_CAST)
            continue;
        const turn *latest = *count > 0 ? &turns[*count - 1] : NULL;
        if (latest == NULL || latest->unit != o->unit || latest->pass != o->pass)
            turns[(*count)++] = (turn){.unit = o->unit, .pass = o->pass, .first = i};
        turns[*count - 1].last = i;
    }
    return turns;
}
