/* The program as people read it, and where its memory goes. */
#include "engine/checked.h"
#include "engine/lifetime.h"
#include "engine/program.h"

#include <stdlib.h>

static bool comes_and_goes(const program *p, const lifetime *lives, tensor_id t) {
    return lives[t].storage == t && !p->tensors[t].persistent && lives[t].first != NO_OPERATION;
}

/* The first operation at which the most bytes live; NO_OPERATION when nothing comes and goes. */
static int32_t peak_of(const program *p, const lifetime *lives) {
    int64_t *change = memory_allocate((size_t)p->operation_count + 1, sizeof *change), live = 0, most = 0;
    int32_t peak = NO_OPERATION;
    for (tensor_id t = 0; t < p->tensor_count; t++)
        if (comes_and_goes(p, lives, t)) {
            change[lives[t].first] += lives[t].bytes;
            change[lives[t].last + 1] -= lives[t].bytes;
        }
    for (int32_t i = 0; i < p->operation_count; i++) {
        live += change[i];
        if (live > most)
            peak = i;
        most = maximum(most, live);
    }
    free(change);
    return peak;
}

memory_profile program_memory(const program *p) {
    lifetime *lives = lifetimes_of(p);
    memory_profile m = {.operation = peak_of(p, lives)};
    for (tensor_id t = 0; t < p->tensor_count; t++) {
        const bool lives_then =
            comes_and_goes(p, lives, t) && lives[t].first <= m.operation && m.operation <= lives[t].last;
        if (!lives_then && !(p->tensors[t].persistent && p->tensors[t].base == NO_TENSOR))
            continue;
        m.bytes[p->tensors[t].role][p->tensors[t].type] += lives[t].bytes;
        m.live += lives[t].bytes;
    }
    free(lives);
    return m;
}

static void print_tensor(const program *p, tensor_id id, FILE *to) {
    const tensor *t = &p->tensors[id];
    fprintf(to, " %s[%lld", t->name, (long long)t->shape[0]);
    for (int i = 1; i < OPERAND_DIMENSIONS && t->shape[i] > 1; i++)
        fprintf(to, ",%lld", (long long)t->shape[i]);
    fprintf(to, "]");
}

static void print_operands(const program *p, const operation *o, FILE *to) {
    for (int k = 0; k < OPERATION_OUTPUTS; k++)
        if (o->out[k] != NO_TENSOR) {
            print_tensor(p, o->out[k], to);
            fprintf(to, "%s@%lld", o->accumulate >> k & 1 ? "+" : "", (long long)p->tensors[o->out[k]].address);
        }
    fprintf(to, " <-");
    for (int k = 0; k < OPERATION_INPUTS; k++)
        if (o->in[k] != NO_TENSOR)
            print_tensor(p, o->in[k], to);
}

static void print_waits(const operation *o, FILE *to) {
    for (int s = 0; s < STREAM_COUNT; s++) {
        if (o->wait[s] != NO_OPERATION)
            fprintf(to, "  waits for %s %d", stream_name((stream)s), o->wait[s]);
        if (o->release[s] != NO_OPERATION)
            fprintf(to, "  waits for all ranks' %s %d", stream_name((stream)s), o->release[s]);
    }
}

void program_print(const program *p, FILE *to) {
    const operation *before = NULL;
    for (int32_t i = 0; i < p->operation_count; i++) {
        const operation *o = &p->operations[i];
        if (before == NULL || before->phase != o->phase || before->unit != o->unit || before->pass != o->pass)
            fprintf(to, "%s %s, pass %d\n", phase_name(o->phase),
                    o->unit == NO_UNIT ? "all units" : p->unit_names[o->unit], o->pass);
        fprintf(to, "  %5d %-7s %-18s", i, stream_name(o->stream), operation_signature_of(o->kind)->name);
        print_operands(p, o, to);
        print_waits(o, to);
        fputc('\n', to);
        before = o;
    }
}
