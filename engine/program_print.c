/* The program as people read it, and where its memory goes. */
#include "engine/checked.h"
#include "engine/lifetime.h"
#include "engine/program.h"

#include <stdlib.h>
#include <string.h>

/* Adds (sign 1) or takes away (sign -1) the storages whose first or last access is at `position`. */
static void change_live(const program *p, const lifetime *lives, int32_t position, int sign, memory_profile *now) {
    for (tensor_id t = 0; t < p->tensor_count; t++) {
        const bool moves = sign > 0 ? lives[t].first == position : lives[t].last == position;
        if (lives[t].storage != t || p->tensors[t].persistent || !moves)
            continue;
        now->bytes[p->tensors[t].role] += sign * lives[t].bytes;
        now->live += sign * lives[t].bytes;
    }
}

memory_profile program_memory(const program *p) {
    memory_profile now = {.operation = NO_OPERATION};
    lifetime *lives = lifetimes_of(p);
    for (tensor_id t = 0; t < p->tensor_count; t++)
        if (p->tensors[t].persistent && p->tensors[t].base == NO_TENSOR) {
            now.bytes[p->tensors[t].role] += p->tensors[t].bytes;
            now.live += p->tensors[t].bytes;
        }
    memory_profile peak = now;
    for (int32_t i = 0; i < p->operation_count; i++) {
        change_live(p, lives, i, 1, &now);
        now.operation = i;
        if (now.live > peak.live)
            peak = now;
        change_live(p, lives, i, -1, &now);
    }
    free(lives);
    return peak;
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
            fprintf(to, "%s %s, micro-batch %d\n", phase_name(o->phase),
                    o->unit == NO_UNIT ? "all units" : p->unit_names[o->unit], o->pass);
        fprintf(to, "  %5d %-7s %-18s", i, stream_name(o->stream), operation_signature_of(o->kind)->name);
        print_operands(p, o, to);
        print_waits(o, to);
        fputc('\n', to);
        before = o;
    }
}
