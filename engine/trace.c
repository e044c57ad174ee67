#include "engine/trace.h"

#include "engine/checked.h"

#include <math.h>
#include <stdlib.h>

struct trace {
    const program *p;
    int64_t first, last;
    step_times *steps; /* [last - first + 1] */
};

trace *trace_create(const program *p, int64_t first, int64_t last) {
    check(first >= 1 && last >= first, "a trace of steps %lld to %lld", (long long)first, (long long)last);
    trace *t = memory_allocate(1, sizeof *t);
    *t = (trace){.p = p, .first = first, .last = last};
    t->steps = memory_allocate((size_t)(last - first + 1), sizeof *t->steps);
    for (int64_t i = 0; i <= last - first; i++)
        t->steps[i].operations = memory_allocate((size_t)p->operation_count, sizeof *t->steps[i].operations);
    return t;
}

void trace_destroy(trace *t) {
    if (t == NULL)
        return;
    for (int64_t i = 0; i <= t->last - t->first; i++)
        free(t->steps[i].operations);
    free(t->steps);
    free(t);
}

step_times *trace_step(trace *t, int64_t step) {
    return t != NULL && step >= t->first && step <= t->last ? &t->steps[step - t->first] : NULL;
}

/* ---- shares ---- */

/* The first collective that an operation waits for; NO_OPERATION: none. */
static int32_t awaited_collective(const program *p, const operation *o) {
    for (int s = 0; s < STREAM_COUNT; s++) {
        if (o->wait[s] != NO_OPERATION && operation_is_collective(p->operations[o->wait[s]].kind))
            return o->wait[s];
        if (o->release[s] != NO_OPERATION)
            return o->release[s];
    }
    return NO_OPERATION;
}

step_shares trace_shares(const trace *t, int64_t step) {
    const step_times *times = &t->steps[step - t->first];
    step_shares shares = {.reduce = times->ended - times->drained};
    for (int32_t i = 0; i < t->p->operation_count; i++) {
        const operation *o = &t->p->operations[i];
        const operation_times *at = &times->operations[i];
        const int32_t awaited = awaited_collective(t->p, o);
        shares.gather += at->moving_gather;
        shares.reduce += at->moving_reduce;
        if (awaited != NO_OPERATION)
            *(t->p->operations[awaited].stream == STREAM_GATHER ? &shares.gather : &shares.reduce) +=
                at->started - at->reached;
        if (o->stream == STREAM_COMPUTE)
            shares.compute += at->ended - at->started;
    }
    shares.idle = times->ended - times->started - shares.compute - shares.gather - shares.reduce;
    return shares;
}

/* ---- events ---- */

/* Rows of a rank in the timeline: the step, then the streams. */
enum { ROW_STEP = 0, ROW_STREAM = 1 };

/* A step on its way into the file. Names hold nothing that JSON would escape: the engine makes them. */
typedef struct writer {
    const program *p;
    const trace_rank *of;
    const step_times *times;
    int64_t step;
    FILE *to;
    int64_t first_arrow;             /* numbers are unique in the file */
    int64_t *begin, *end;            /* [operations]: on its row, nanoseconds */
    int64_t row_ended[STREAM_COUNT]; /* where the row's latest event ends */
} writer;

static int64_t nanoseconds(const writer *w, double clock) {
    return llround((clock - w->of->origin) * 1e9);
}

/* The format counts in microseconds. */
static double microseconds(int64_t ns) {
    return (double)ns / 1e3;
}

static void begin_event(const writer *w, const char *type, int row, int64_t at) {
    fprintf(w->to, ",\n{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f", type, w->of->rank, row, microseconds(at));
}

static void begin_slice(const writer *w, int row, int64_t from, int64_t to, const char *category) {
    begin_event(w, "X", row, from);
    fprintf(w->to, ",\"dur\":%.3f,\"cat\":\"%s\",\"name\":\"", microseconds(to - from), category);
}

static const char *unit_of(const program *p, const operation *o) {
    return o->unit == NO_UNIT ? "all units" : p->unit_names[o->unit];
}

static void write_name(const writer *w, int32_t i) {
    const operation *o = &w->p->operations[i];
    const tensor_id shown = o->out[0] != NO_TENSOR ? o->out[0] : o->in[0];
    fprintf(w->to, "%s %s", operation_signature_of(o->kind)->name,
            operation_is_collective(o->kind) ? unit_of(w->p, o) : w->p->tensors[shown].name);
}

static void write_arguments(const writer *w, int32_t i) {
    const operation *o = &w->p->operations[i];
    const launch l = program_launch(w->p, o, NULL);
    const double flops = operation_flops(&l), bytes = operation_bytes(&l);
    const double seconds = (double)(w->end[i] - w->begin[i]) * 1e-9;
    fprintf(w->to,
            "\",\"args\":{\"step\":%lld,\"micro_batch\":%d,\"phase\":\"%s\",\"unit\":\"%s\",\"operation\":%d,"
            "\"bytes\":%.0f,\"flops\":%.0f",
            (long long)w->step, o->pass, phase_name(o->phase), unit_of(w->p, o), i, bytes, flops);
    if (seconds > 0 && flops > 0 && !operation_is_collective(o->kind))
        fprintf(w->to, ",\"GFLOP/s\":%.4g", flops / seconds * 1e-9);
    if (seconds > 0)
        fprintf(w->to, ",\"GB/s\":%.4g", bytes / seconds * 1e-9);
    fputs("}}", w->to);
}

/* A stream executes in order, so a collective that is issued early starts on its row when the one before it ends. */
static void place_on_row(writer *w, int32_t i) {
    const operation *o = &w->p->operations[i];
    const operation_times *at = &w->times->operations[i];
    w->begin[i] = maximum(nanoseconds(w, at->started), w->row_ended[o->stream]);
    const double ended = operation_is_collective(o->kind) ? at->completed : at->ended;
    w->end[i] = maximum(nanoseconds(w, ended), w->begin[i]);
    w->row_ended[o->stream] = w->end[i];
}

static void write_operation(const writer *w, int32_t i) {
    const operation *o = &w->p->operations[i];
    begin_slice(w, ROW_STREAM + (int)o->stream, w->begin[i], w->end[i], phase_name(o->phase));
    write_name(w, i);
    write_arguments(w, i);
}

/* The time in which the rank computed nothing because of a collective. */
static void write_exposed(const writer *w, int32_t i) {
    const operation_times *at = &w->times->operations[i];
    const int32_t collective = awaited_collective(w->p, &w->p->operations[i]);
    if (collective != NO_OPERATION) {
        begin_slice(w, ROW_STREAM + STREAM_COMPUTE, nanoseconds(w, at->reached), nanoseconds(w, at->started),
                    "exposed");
        fputs("wait for ", w->to);
        write_name(w, collective);
        fprintf(w->to, "\",\"args\":{\"step\":%lld,\"operation\":%d}}", (long long)w->step, collective);
    }
    const double moving = at->moving_gather + at->moving_reduce;
    if (moving > 0) {
        const double from = operation_is_collective(w->p->operations[i].kind) ? at->started : at->ended;
        begin_slice(w, ROW_STREAM + STREAM_COMPUTE, nanoseconds(w, from), nanoseconds(w, from + moving), "exposed");
        fprintf(w->to, "move parts\",\"args\":{\"step\":%lld}}", (long long)w->step);
    }
}

/* An arrow from the end of `from` (its last nanosecond, which still belongs to it) to the start of operation i. */
static void write_arrow(const writer *w, int32_t from, int32_t i, const char *name, int64_t number) {
    const operation *source = &w->p->operations[from], *target = &w->p->operations[i];
    const char *const ends[] = {"s", "f"};
    const int rows[] = {ROW_STREAM + (int)source->stream, ROW_STREAM + (int)target->stream};
    const int64_t at[] = {maximum(w->begin[from], w->end[from] - 1), w->begin[i]};
    for (int k = 0; k < 2; k++) {
        begin_event(w, ends[k], rows[k], at[k]);
        fprintf(w->to, ",\"cat\":\"wait\",\"name\":\"%s\",\"id\":%lld%s}", name, (long long)number,
                k == 1 ? ",\"bp\":\"e\"" : "");
    }
}

static void write_arrows(const writer *w, int32_t i) {
    const operation *o = &w->p->operations[i];
    const int64_t first = w->first_arrow + (int64_t)i * 2 * STREAM_COUNT;
    for (int s = 0; s < STREAM_COUNT; s++) {
        if (o->wait[s] != NO_OPERATION && s != (int)o->stream)
            write_arrow(w, o->wait[s], i, "wait", first + 2 * s);
        if (o->release[s] != NO_OPERATION && s != (int)o->stream)
            write_arrow(w, o->release[s], i, "wait for all ranks", first + 2 * s + 1);
    }
}

static void write_step(const trace *t, int64_t step, const trace_rank *of, FILE *to) {
    writer w = {.p = t->p, .of = of, .times = &t->steps[step - t->first], .step = step, .to = to};
    const int64_t before = of->rank * (t->last - t->first + 1) + step - t->first; /* steps of ranks */
    w.first_arrow = before * t->p->operation_count * 2 * STREAM_COUNT;
    w.begin = memory_allocate((size_t)t->p->operation_count, sizeof *w.begin);
    w.end = memory_allocate((size_t)t->p->operation_count, sizeof *w.end);
    for (int s = 0; s < STREAM_COUNT; s++)
        w.row_ended[s] = nanoseconds(&w, w.times->started);
    begin_slice(&w, ROW_STEP, nanoseconds(&w, w.times->started), nanoseconds(&w, w.times->ended), "step");
    const step_shares shares = trace_shares(t, step);
    fprintf(to, "step %lld\",\"args\":{\"step\":%lld,\"compute\":%.9f,\"exposed\":%.9f,\"idle\":%.9f}}",
            (long long)step, (long long)step, shares.compute, shares.gather + shares.reduce, shares.idle);
    for (int32_t i = 0; i < t->p->operation_count; i++) {
        place_on_row(&w, i);
        write_exposed(&w, i);
        write_operation(&w, i);
        write_arrows(&w, i);
    }
    begin_slice(&w, ROW_STREAM + STREAM_COMPUTE, nanoseconds(&w, w.times->drained), nanoseconds(&w, w.times->ended),
                "exposed");
    fprintf(to, "wait for the step's collectives\",\"args\":{\"step\":%lld}}", (long long)step);
    free(w.begin);
    free(w.end);
}

static void write_row_name(const trace_rank *of, int row, const char *name, FILE *to) {
    fprintf(to, ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"%s\"}}", of->rank,
            row, name);
    fprintf(to, ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":%d}}",
            of->rank, row, row);
}

void trace_write(const trace *t, int64_t first, int64_t last, const trace_rank *of, FILE *to) {
    fprintf(to, "{\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"rank %d (%s)\"}}",
            of->rank, of->rank, of->host);
    fprintf(to, ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%d}}",
            of->rank, of->rank);
    write_row_name(of, ROW_STEP, "step", to);
    for (int s = 0; s < STREAM_COUNT; s++)
        write_row_name(of, ROW_STREAM + s, stream_name((stream)s), to);
    for (int64_t step = first; step <= last; step++)
        write_step(t, step, of, to);
}
