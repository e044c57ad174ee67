/* The forward operations of a transformer, written from one set of parts.
 *
 * Both families are the same list: embedding; per block norm, attention, norm, feed forward; norm and head. Residual
 * sums are part of the norm that follows them: a block hands on (branch, residual) and the next norm adds the two. */
#include "engine/checked.h"
#include "models/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A chunk's logits: at most 64 MB, but whole tiles of rows for the matmul. */
enum { HEAD_CHUNK_ELEMENTS = 1 << 24, HEAD_CHUNK_ROWS = 64 };

typedef struct writer {
    program *p;
    const model *m;
    const precision_settings *precision;
    int64_t tokens;   /* of the micro-batch */
    int64_t sequence; /* tokens of a sequence */
    int32_t unit;     /* unit of the operations being written */
    int32_t block;    /* block being written; -1: none */
    tensor_part part; /* part of it */
    char prefix[32];  /* of the names of activations and parameters: "block3" */
    tensor_id cosine, sine;
    tensor_id targets, scalars;
    tensor_id *parameters; /* [list]: their tensors; NO_TENSOR until used */
    int32_t found;         /* parameter that was looked up last */
} writer;

static tensor_id parameter_tensor(writer *w, int32_t index) {
    const parameter *declared = &w->m->list.items[index];
    if (w->parameters[index] != NO_TENSOR) /* a tied table is used twice */
        return w->parameters[index];
    tensor_id t = program_tensor(w->p, declared->name, ROLE_PARAMETER, w->precision->storage, declared->dimensions,
                                 declared->shape);
    w->p->tensors[t].unit = declared->unit;
    w->p->tensors[t].parameter = index;
    return w->parameters[index] = t;
}

/* The parameter of this name, which must be declared. They are used about as they are declared, so the search starts
 * where the last one ended. */
static int32_t find_parameter(writer *w, const char *prefix, const char *name) {
    char *full = memory_format("%s.%s", prefix, name);
    const int32_t start = w->found, count = w->m->list.count;
    while (strcmp(w->m->list.items[w->found].name, full) != 0) {
        w->found = (w->found + 1) % count;
        check(w->found != start, "the model has no parameter %s", full);
    }
    free(full);
    return w->found;
}

static tensor_id named(writer *w, const char *name) {
    return parameter_tensor(w, find_parameter(w, w->prefix, name));
}

static tensor_id value(writer *w, const char *name, dtype type, int64_t rows, int64_t columns) {
    char *full = memory_format("%s.%s", w->prefix, name);
    tensor_id t = program_tensor(w->p, full, ROLE_ACTIVATION, type, 2, (int64_t[]){rows, columns});
    w->p->tensors[t].block = w->block;
    w->p->tensors[t].part = w->part;
    free(full);
    return t;
}

static tensor_id activation(writer *w, const char *name, int64_t rows, int64_t columns) {
    return value(w, name, w->precision->storage, rows, columns);
}

static tensor_id statistic(writer *w, const char *name, int64_t rows, int64_t columns) {
    return value(w, name, DTYPE_F32, rows, columns);
}

static operation make(writer *w, operation_kind kind) {
    operation o = operation_make(kind, PHASE_FORWARD, w->unit);
    o.attributes.sequence = w->sequence;
    return o;
}

static tensor_id copied_in(writer *w, const char *name, host_buffer host, dtype type, int64_t count) {
    operation o = make(w, OPERATION_COPY_IN);
    o.stream = STREAM_COPY;
    o.attributes.host = host;
    o.out[0] = program_tensor(w->p, name, ROLE_INPUT, type, 1, &count);
    program_append(w->p, &o);
    return o.out[0];
}

/* ---- parts ---- */

static tensor_id embedding(writer *w, tensor_id tokens) {
    operation o = make(w, OPERATION_EMBEDDING);
    o.in[0] = tokens;
    o.in[1] = named(w, "tokens");
    if (w->m->shape.family == FAMILY_GPT2)
        o.in[2] = named(w, "positions");
    o.out[0] = activation(w, "output", w->tokens, w->m->shape.width);
    program_append(w->p, &o);
    return o.out[0];
}

/* Adds the branch to the residual and normalises the sum, which becomes the residual. Before the first block there is
 * none yet: NO_TENSOR, and the branch alone is normalised. */
static tensor_id add_and_norm(writer *w, const char *name, tensor_id branch, tensor_id *residual) {
    const model_shape *s = &w->m->shape;
    char part[32];
    operation o = make(w, OPERATION_NORM);
    o.attributes.norm = s->family == FAMILY_GPT2 ? NORM_LAYER : NORM_RMS;
    o.attributes.epsilon = s->norm_epsilon;
    o.in[0] = branch;
    o.in[1] = *residual;
    snprintf(part, sizeof part, "%s.weight", name);
    o.in[2] = named(w, part);
    snprintf(part, sizeof part, "%s.bias", name);
    if (s->family == FAMILY_GPT2)
        o.in[3] = named(w, part);
    o.out[0] = activation(w, name, w->tokens, s->width);
    snprintf(part, sizeof part, "%s.residual", name);
    if (*residual != NO_TENSOR)
        o.out[1] = activation(w, part, w->tokens, s->width);
    snprintf(part, sizeof part, "%s.statistics", name);
    o.out[2] = statistic(w, part, w->tokens, 2);
    program_append(w->p, &o);
    *residual = *residual == NO_TENSOR ? branch : o.out[1];
    return o.out[0];
}

/* x times the weight; GPT-2 stores weights as (in, out) and has biases, Llama as (out, in) and has none. */
static tensor_id linear(writer *w, const char *name, tensor_id x) {
    const bool gpt2 = w->m->shape.family == FAMILY_GPT2;
    char part[64];
    operation o = make(w, OPERATION_MATMUL);
    o.in[0] = x;
    o.in[1] = named(w, name);
    snprintf(part, sizeof part, "%s_bias", name);
    if (gpt2)
        o.in[2] = named(w, part);
    o.attributes.transpose_b = !gpt2;
    o.attributes.tf32 = w->precision->tf32;
    snprintf(part, sizeof part, "%s.output", name);
    o.out[0] = activation(w, part, w->tokens, w->p->tensors[o.in[1]].shape[gpt2 ? 1 : 0]);
    program_append(w->p, &o);
    return o.out[0];
}

static attributes head_attributes(const writer *w) {
    const model_shape *s = &w->m->shape;
    return (attributes){.sequence = w->sequence,
                        .heads = s->heads,
                        .kv_heads = s->kv_heads,
                        .head_width = s->head_width,
                        .causal = true,
                        .scale = 1 / sqrt((double)s->head_width)};
}

static tensor_id rotate(writer *w, tensor_id qkv) {
    operation o = make(w, OPERATION_ROPE);
    o.attributes = head_attributes(w);
    o.in[0] = qkv;
    o.in[1] = w->cosine;
    o.in[2] = w->sine;
    o.out[0] = activation(w, "attention.rotated", w->tokens, w->p->tensors[qkv].shape[1]);
    program_append(w->p, &o);
    return o.out[0];
}

static tensor_id attend(writer *w, tensor_id qkv) {
    const model_shape *s = &w->m->shape;
    operation o = make(w, OPERATION_ATTENTION);
    o.attributes = head_attributes(w);
    o.in[0] = qkv;
    o.out[0] = activation(w, "attention.heads", w->tokens, s->heads * s->head_width);
    o.out[1] = statistic(w, "attention.logsumexp", w->tokens, s->heads);
    program_append(w->p, &o);
    return o.out[0];
}

static tensor_id activate(writer *w, tensor_id x) {
    const bool gpt2 = w->m->shape.family == FAMILY_GPT2;
    operation o = make(w, gpt2 ? OPERATION_GELU : OPERATION_SWIGLU);
    o.in[0] = x;
    o.out[0] = activation(w, "feed_forward.activated", w->tokens, w->m->shape.feed_forward);
    program_append(w->p, &o);
    return o.out[0];
}

/* ---- the model ---- */

/* Takes the branch that the block before it hands on, and returns its own. */
static tensor_id block(writer *w, tensor_id branch, tensor_id *residual) {
    const bool llama = w->m->shape.family == FAMILY_LLAMA;
    w->part = PART_ATTENTION;
    tensor_id x = add_and_norm(w, "norm1", branch, residual);
    w->p->tensors[*residual].part = PART_ENTRY;
    x = linear(w, "attention.qkv", x);
    if (llama)
        x = rotate(w, x);
    x = attend(w, x);
    w->part = PART_FEED_FORWARD;
    x = linear(w, "attention.output", x);
    x = add_and_norm(w, "norm2", x, residual);
    x = linear(w, llama ? "feed_forward.gate_up" : "feed_forward.up", x);
    x = activate(w, x);
    return linear(w, "feed_forward.down", x);
}

/* The head's weight is stored (vocabulary, width) in both families; tied, it is the embedding table. */
static tensor_id head_weight(writer *w) {
    const bool tied = w->m->shape.tied;
    return parameter_tensor(w, tied ? find_parameter(w, "embedding", "tokens") : find_parameter(w, "head", "weight"));
}

static tensor_id logits_of(writer *w, tensor_id x, tensor_id weight, int32_t chunk) {
    operation o = make(w, OPERATION_MATMUL);
    o.chunk = chunk;
    o.attributes.transpose_b = true;
    o.attributes.tf32 = w->precision->tf32;
    o.in[0] = x;
    o.in[1] = weight;
    o.out[0] = activation(w, "logits", w->p->tensors[x].shape[0], w->m->shape.vocabulary);
    program_append(w->p, &o);
    return o.out[0];
}

/* Rows of a head chunk: few enough for its logits to stay small, and evenly many. */
static int64_t head_rows(int64_t tokens, int64_t vocabulary) {
    const int64_t most = maximum(HEAD_CHUNK_ELEMENTS / vocabulary / HEAD_CHUNK_ROWS, 1) * HEAD_CHUNK_ROWS;
    return minimum(tokens, round_up(divide_up(tokens, divide_up(tokens, most)), HEAD_CHUNK_ROWS));
}

static void loss_chunk(writer *w, tensor_id x, tensor_id weight, tensor_id losses, int64_t first, int64_t rows,
                       int32_t chunk) {
    const int64_t width = w->m->shape.width, row = width * dtype_bytes(w->precision->storage);
    const tensor_id part = program_view(w->p, "head.rows", x, first * row, 2, (int64_t[]){rows, width});
    operation o = make(w, OPERATION_CROSS_ENTROPY);
    o.chunk = chunk;
    o.in[0] = logits_of(w, part, weight, chunk);
    o.in[1] = program_view(w->p, "targets.rows", w->targets, first * dtype_bytes(DTYPE_I32), 1, &rows);
    o.in[2] = w->scalars;
    o.out[0] = program_view(w->p, "losses.rows", losses, first * dtype_bytes(DTYPE_F32), 1, &rows);
    program_append(w->p, &o);
}

static void loss_head(writer *w, tensor_id x) {
    const tensor_id weight = head_weight(w);
    const int64_t rows = head_rows(w->tokens, w->m->shape.vocabulary);
    const tensor_id losses = program_tensor(w->p, "losses", ROLE_ACTIVATION, DTYPE_F32, 1, &w->tokens);
    for (int64_t first = 0; first < w->tokens; first += rows)
        loss_chunk(w, x, weight, losses, first, minimum(rows, w->tokens - first), (int32_t)(first / rows));
    operation sum = make(w, OPERATION_SUM);
    sum.in[0] = losses;
    sum.out[0] = program_tensor(w->p, "loss", ROLE_RESULT, DTYPE_F64, 1, (int64_t[]){1});
    program_append(w->p, &sum);
}

static void set_unit(writer *w, int32_t unit, const char *prefix) {
    w->unit = unit;
    snprintf(w->prefix, sizeof w->prefix, "%s", prefix);
}

static void set_block(writer *w, int64_t index) {
    snprintf(w->prefix, sizeof w->prefix, "block%lld", (long long)index);
    w->block = (int32_t)index;
    w->unit = w->m->list.items[find_parameter(w, w->prefix, "norm1.weight")].unit;
}

static void rope_tables(writer *w) {
    const int64_t shape[] = {w->sequence, w->m->shape.head_width / 2};
    w->cosine = program_tensor(w->p, "rope.cosine", ROLE_CONSTANT, DTYPE_F32, 2, shape);
    w->sine = program_tensor(w->p, "rope.sine", ROLE_CONSTANT, DTYPE_F32, 2, shape);
}

program *model_forward(const model *m, int64_t sequences, int64_t sequence, head_mode mode,
                       const precision_settings *precision) {
    const int32_t units = m->list.unit_count;
    writer w = {.p = program_create(units, (const char *const *)m->list.unit_names),
                .m = m,
                .precision = precision,
                .tokens = must_multiply(sequences, sequence),
                .sequence = sequence,
                .block = -1,
                .parameters = memory_allocate((size_t)m->list.count, sizeof(tensor_id))};
    for (int32_t i = 0; i < m->list.count; i++)
        w.parameters[i] = NO_TENSOR;
    set_unit(&w, 0, "embedding");
    if (m->shape.family == FAMILY_LLAMA)
        rope_tables(&w);
    const tensor_id tokens = copied_in(&w, "tokens", HOST_TOKENS, DTYPE_I32, w.tokens);
    if (mode == HEAD_LOSS) {
        w.targets = copied_in(&w, "targets", HOST_TARGETS, DTYPE_I32, w.tokens);
        w.scalars = copied_in(&w, "scalars", HOST_SCALARS, DTYPE_F64, SCALAR_COUNT);
    }
    tensor_id branch = embedding(&w, tokens), residual = NO_TENSOR;
    for (int64_t i = 0; i < m->shape.layers; i++) {
        set_block(&w, i);
        branch = block(&w, branch, &residual);
    }
    w.block = -1;
    w.part = PART_OTHER;
    set_unit(&w, m->shape.tied ? 0 : units - 1, "head");
    const tensor_id x = add_and_norm(&w, "norm", branch, &residual);
    if (mode == HEAD_LOSS)
        loss_head(&w, x);
    else
        logits_of(&w, x, head_weight(&w), NO_CHUNK);
    free(w.parameters);
    return w.p;
}
