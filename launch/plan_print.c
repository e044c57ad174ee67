/* The plan as people read it: what will be trained, who owns what, where the memory goes. */
#include "launch/plan.h"

#include "engine/recompute.h"
#include "engine/waits.h"

static void print_model(const plan *p, const config *c, FILE *to) {
    const model_shape *s = &p->model->shape;
    fprintf(to, "model        %s, %.1f million parameters: %lld layers, width %lld, %lld heads",
            model_family_name(s->family), (double)p->model->list.elements / 1e6, (long long)s->layers,
            (long long)s->width, (long long)s->heads);
    if (s->kv_heads != s->heads)
        fprintf(to, " (%lld key/value)", (long long)s->kv_heads);
    fprintf(to, " of %lld, feed forward %lld, vocabulary %lld, %s head\n", (long long)s->head_width,
            (long long)s->feed_forward, (long long)s->vocabulary, s->tied ? "tied" : "untied");
    fprintf(to, "batch        %lld sequences of %lld tokens: %d rank%s x %lld pass%s x micro-batches of %lld\n",
            (long long)c->train.global_batch, (long long)c->train.sequence, p->mesh.ranks,
            p->mesh.ranks == 1 ? "" : "s", (long long)p->passes, p->passes == 1 ? "" : "es",
            (long long)c->train.micro_batch);
    static const char *const strategies[] = {"full", "gradients", "optimizer", "none"};
    fprintf(to, "sharding     strategy %s: %lld units, shard group of %d rank%s, prefetch %lld\n",
            strategies[c->shard.strategy], (long long)p->model->list.unit_count, p->mesh.group_size,
            p->mesh.group_size == 1 ? "" : "s", (long long)c->shard.prefetch);
}

/* Nothing where everything is fp32. */
static void print_precision(const plan *p, FILE *to) {
    const precision_settings *s = &p->precision;
    if (s->storage == DTYPE_F32 && s->wire == DTYPE_F32 && !s->tf32)
        return;
    fprintf(to, "precision    parameters and activations in %s%s, gradients sent in %s", dtype_name(s->storage),
            s->tf32 ? ", matmuls in tf32" : "", dtype_name(s->wire));
    if (s->loss_scale > 0)
        fprintf(to, ", loss scale %g%s", s->loss_scale, s->loss_scale_interval > 0 ? " at first, dynamic" : "");
    fputc('\n', to);
}

static void print_recompute(const plan *p, const config *c, FILE *to) {
    static const char *const policies[] = {"none", "block", "attention", "memory"};
    if (c->shard.recompute == RECOMPUTE_NONE || p->train == NULL)
        return;
    fprintf(to, "recompute    %s", policies[c->shard.recompute]);
    if (c->shard.recompute == RECOMPUTE_MEMORY)
        fprintf(to, ", level %d of %d", p->level, p->levels);
    fputc('\n', to);
}

static double megabytes(int64_t bytes) {
    return (double)bytes / 1e6;
}

static void print_peak(const program *x, const memory_profile *m, FILE *to) {
    if (m->operation == NO_OPERATION)
        return;
    const operation *o = &x->operations[m->operation];
    fprintf(to, "peak         at operation %d: %s %s of %s, pass %d\n", m->operation, phase_name(o->phase),
            operation_signature_of(o->kind)->name, o->unit == NO_UNIT ? "all units" : x->unit_names[o->unit], o->pass);
}

static void print_memory(const plan *p, FILE *to) {
    const program *x = p->train != NULL ? p->train->program : p->validation->program;
    const memory_profile m = program_memory(x);
    fprintf(to, "memory       per rank, at the step's peak\n");
    for (int role = 0; role < ROLE_COUNT; role++)
        for (int type = 0; type < DTYPE_COUNT; type++)
            if (m.bytes[role][type] > 0)
                fprintf(to, "             %-20s %12.3f MB  %s\n", tensor_role_name((tensor_role)role),
                        megabytes(m.bytes[role][type]), dtype_name((dtype)type));
    fprintf(to, "             %-20s %12.3f MB  (%lld bytes)\n", "arena", megabytes(p->arena_bytes),
            (long long)p->arena_bytes);
    fprintf(to, "             %-20s %12.3f MB  live at once; %.3f MB with what is being reduced held for a while\n",
            "lower bound", megabytes(x->live_bytes), megabytes(x->held_bytes));
    if (x->shortened_holds > 0)
        fprintf(to, "             to save bytes, %d tensors being reduced are held for less than is best for speed\n",
                x->shortened_holds);
    if (p->copy_bytes > 0)
        fprintf(to, "             %-20s %12.3f MB  of host memory beside it, for checkpoints in the background\n",
                "copy", megabytes(p->copy_bytes));
    print_peak(x, &m, to);
}

void plan_print(const plan *p, const config *c, FILE *to) {
    print_model(p, c, to);
    print_precision(p, to);
    print_recompute(p, c, to);
    print_memory(p, to);
    const program *x = p->train != NULL ? p->train->program : p->validation->program;
    fprintf(to,
            "program      %d operations on %d streams, %d waits between streams; verified: no race, no stale read, no "
            "deadlock\n",
            x->operation_count, STREAM_COUNT, waits_count(x));
}

void plan_print_program(const plan *p, FILE *to) {
    if (p->train != NULL) {
        fprintf(to, "\ntraining step of rank %d (operation, stream, kind, outputs@address <- inputs)\n", p->mesh.rank);
        program_print(p->train->program, to);
    }
    if (p->validation != NULL) {
        fprintf(to, "\nvalidation step of rank %d\n", p->mesh.rank);
        program_print(p->validation->program, to);
    }
}
