#include "engine/device/operation.h"

#include "engine/error.h"

#include <string.h>

/* Bits of operands and outputs. */
enum { FIRST = 1, SECOND = 2, THIRD = 4, FOURTH = 8 };

static const operation_signature signatures[OPERATION_KIND_COUNT] = {
    [OPERATION_EMBEDDING] = {.name = "embedding",
                             .inputs = {"tokens", "table", "positions"},
                             .outputs = {"out"},
                             .optional_inputs = THIRD,
                             .input_types = "iAA",
                             .output_types = "A",
                             .shares = {-1, -1, -1}},
    [OPERATION_EMBEDDING_BACKWARD] = {.name = "embedding_backward",
                                      .inputs = {"dout", "tokens", "order"},
                                      .outputs = {"dtable"},
                                      .accumulates = FIRST,
                                      .input_types = "Aii",
                                      .output_types = "G",
                                      .shares = {-1, -1, -1}},
    [OPERATION_POSITION_BACKWARD] = {.name = "position_backward",
                                     .inputs = {"dout"},
                                     .outputs = {"dpositions"},
                                     .accumulates = FIRST,
                                     .input_types = "A",
                                     .output_types = "G",
                                     .shares = {-1, -1, -1}},
    [OPERATION_NORM] = {.name = "norm",
                        .inputs = {"x", "residual", "weight", "bias"},
                        .outputs = {"normed", "sum", "statistics"},
                        .optional_inputs = SECOND | FOURTH,
                        .optional_outputs = SECOND,
                        .input_types = "AAAA",
                        .output_types = "AAf",
                        .shares = {-1, 0, -1}},
    [OPERATION_NORM_BACKWARD] = {.name = "norm_backward",
                                 .inputs = {"dnormed", "dsum", "sum", "statistics", "weight"},
                                 .outputs = {"dsum", "dweight", "dbias"},
                                 .optional_inputs = SECOND,
                                 .optional_outputs = THIRD,
                                 .accumulates = SECOND | THIRD,
                                 .input_types = "AAAfA",
                                 .output_types = "AGG",
                                 .shares = {0, -1, -1}},
    [OPERATION_MATMUL] = {.name = "matmul",
                          .inputs = {"a", "b", "bias"},
                          .outputs = {"c", "preactivation", "column_sums"},
                          .optional_inputs = THIRD,
                          .optional_outputs = SECOND | THIRD,
                          .accumulates = FIRST,
                          .input_types = "AAA",
                          .output_types = "GAG",
                          .shares = {-1, -1, -1}},
    [OPERATION_COLUMN_SUM] = {.name = "column_sum",
                              .inputs = {"x"},
                              .outputs = {"out"},
                              .accumulates = FIRST,
                              .input_types = "A",
                              .output_types = "G",
                              .shares = {-1, -1, -1}},
    [OPERATION_ROPE] = {.name = "rope",
                        .inputs = {"qkv", "cosine", "sine"},
                        .outputs = {"out"},
                        .input_types = "Aff",
                        .output_types = "A",
                        .shares = {0, -1, -1}},
    [OPERATION_ATTENTION] = {.name = "attention",
                             .inputs = {"qkv"},
                             .outputs = {"out", "logsumexp"},
                             .input_types = "A",
                             .output_types = "Af",
                             .shares = {-1, -1, -1}},
    [OPERATION_ATTENTION_BACKWARD] = {.name = "attention_backward",
                                      .inputs = {"dout", "qkv", "out", "logsumexp"},
                                      .outputs = {"dqkv"},
                                      .input_types = "AAAf",
                                      .output_types = "A",
                                      .shares = {-1, -1, -1}},
    [OPERATION_GELU] = {.name = "gelu",
                        .inputs = {"x"},
                        .outputs = {"out"},
                        .input_types = "A",
                        .output_types = "A",
                        .shares = {-1, -1, -1}},
    [OPERATION_GELU_BACKWARD] = {.name = "gelu_backward",
                                 .inputs = {"dout", "x"},
                                 .outputs = {"dx"},
                                 .input_types = "AA",
                                 .output_types = "A",
                                 .shares = {0, -1, -1}},
    [OPERATION_SWIGLU] = {.name = "swiglu",
                          .inputs = {"gate_up"},
                          .outputs = {"out"},
                          .input_types = "A",
                          .output_types = "A",
                          .shares = {-1, -1, -1}},
    [OPERATION_SWIGLU_BACKWARD] = {.name = "swiglu_backward",
                                   .inputs = {"dout", "gate_up"},
                                   .outputs = {"dgate_up"},
                                   .input_types = "AA",
                                   .output_types = "A",
                                   .shares = {1, -1, -1}},
    [OPERATION_CROSS_ENTROPY] = {.name = "cross_entropy",
                                 .inputs = {"logits", "targets", "scalars", "loss_scale"},
                                 .outputs = {"loss", "dlogits"},
                                 .optional_inputs = FOURTH,
                                 .optional_outputs = SECOND,
                                 .input_types = "Aidd",
                                 .output_types = "fA",
                                 .shares = {-1, 0, -1}},
    [OPERATION_ADD] = {.name = "add",
                       .inputs = {"a", "b"},
                       .outputs = {"out"},
                       .input_types = "AA",
                       .output_types = "A",
                       .shares = {0, -1, -1}},
    [OPERATION_FILL] = {.name = "fill", .outputs = {"out"}, .output_types = "S", .shares = {-1, -1, -1}},
    [OPERATION_CAST] = {.name = "cast",
                        .inputs = {"x"},
                        .outputs = {"out"},
                        .input_types = "S",
                        .output_types = "S",
                        .shares = {-1, -1, -1}},
    [OPERATION_SUM] = {.name = "sum",
                       .inputs = {"x"},
                       .outputs = {"out"},
                       .input_types = "f",
                       .output_types = "d",
                       .shares = {-1, -1, -1}},
    [OPERATION_GRANULE_NORM] = {.name = "granule_norm",
                                .inputs = {"gradient"},
                                .outputs = {"squares"},
                                .input_types = "f",
                                .output_types = "d",
                                .shares = {-1, -1, -1}},
    [OPERATION_STEP_RESULT] = {.name = "step_result",
                               .inputs = {"contributions", "scalars"},
                               .outputs = {"result", "update_count", "loss_scale"},
                               .optional_outputs = THIRD,
                               .accumulates = SECOND | THIRD,
                               .input_types = "dd",
                               .output_types = "ddd",
                               .shares = {-1, -1, -1}},
    [OPERATION_ADAMW] = {.name = "adamw",
                         .inputs = {"gradient", "scalars", "result", "update_count"},
                         .outputs = {"master", "first_moment", "second_moment"},
                         .accumulates = FIRST | SECOND | THIRD,
                         .input_types = "fddd",
                         .output_types = "fff",
                         .shares = {-1, -1, -1}},
    [OPERATION_COPY_IN] = {.name = "copy_in", .outputs = {"out"}, .output_types = "*", .shares = {-1, -1, -1}},
    [OPERATION_COPY_OUT] = {.name = "copy_out", .inputs = {"x"}, .input_types = "*", .shares = {-1, -1, -1}},
    [OPERATION_ALL_GATHER] = {.name = "all_gather",
                              .inputs = {"shard"},
                              .outputs = {"whole"},
                              .input_types = "*",
                              .output_types = "*",
                              .shares = {-1, -1, -1}},
    [OPERATION_REDUCE_SCATTER] = {.name = "reduce_scatter",
                                  .inputs = {"whole"},
                                  .outputs = {"shard"},
                                  .accumulates = FIRST,
                                  .input_types = "W",
                                  .output_types = "f",
                                  .shares = {-1, -1, -1}},
    [OPERATION_ALL_REDUCE] = {.name = "all_reduce",
                              .inputs = {"x"},
                              .outputs = {"out"},
                              .input_types = "W",
                              .output_types = "W",
                              .shares = {0, -1, -1}},
};

const operation_signature *operation_signature_of(operation_kind kind) {
    check(kind >= 0 && kind < OPERATION_KIND_COUNT, "operation kind %d", (int)kind);
    return &signatures[kind];
}

/* ---- types ---- */

static bool is_storage(dtype type) {
    return type == DTYPE_F32 || type == DTYPE_BF16 || type == DTYPE_F16;
}

/* Operands in one row: the inputs, then the outputs. */
enum { OPERANDS = OPERATION_INPUTS + OPERATION_OUTPUTS };

static const operand *operand_at(const launch *l, int place) {
    return place < OPERATION_INPUTS ? &l->in[place] : &l->out[place - OPERATION_INPUTS];
}

static char letter_at(const operation_signature *s, int place) {
    return place < OPERATION_INPUTS ? s->input_types[place] : s->output_types[place - OPERATION_INPUTS];
}

/* The type of the first operand there whose letter is one of these; DTYPE_COUNT: there is none. */
static dtype first_type(const launch *l, const char *letters) {
    const operation_signature *s = operation_signature_of(l->kind);
    for (int place = 0; place < OPERANDS; place++) {
        const char letter = letter_at(s, place);
        if (letter != '\0' && strchr(letters, letter) != NULL && operand_at(l, place)->data != NULL)
            return operand_at(l, place)->type;
    }
    return DTYPE_COUNT;
}

/* storage, joint: what A and *, W stand for in this operation. */
static bool accepts(char letter, dtype type, dtype storage, dtype joint) {
    switch (letter) {
    case 'A':
        return is_storage(type) && type == storage;
    case 'G':
        return type == DTYPE_F32 || type == storage;
    case 'S':
        return is_storage(type);
    case 'W':
        return (type == DTYPE_F32 || type == DTYPE_BF16) && type == joint;
    case 'f':
        return type == DTYPE_F32;
    case 'd':
        return type == DTYPE_F64;
    case 'i':
        return type == DTYPE_I32;
    case '*':
        return type == joint;
    default:
        return false;
    }
}

dtype operation_storage(const launch *l) {
    const dtype found = first_type(l, "A");
    return found == DTYPE_COUNT ? DTYPE_F32 : found;
}

int operation_wrong_type(const launch *l) {
    const operation_signature *s = operation_signature_of(l->kind);
    const dtype storage = first_type(l, "A"), joint = first_type(l, "*W");
    for (int place = 0; place < OPERANDS; place++) {
        const operand *o = operand_at(l, place);
        if (o->data != NULL && !accepts(letter_at(s, place), o->type, storage, joint))
            return place;
    }
    return -1;
}

/* ---- costs ---- */

/* Pairs of query and key that attend to each other, over all sequences and query heads. */
static double attention_pairs(const launch *l, const operand *qkv) {
    const attributes *a = &l->attributes;
    double sequence = (double)a->sequence;
    double per_query = a->causal ? (sequence + 1) / 2 : sequence;
    return (double)qkv->shape[0] * (double)a->heads * per_query;
}

enum { GELU_FLOPS = 9 };

static double norm_flops(const launch *l) { /* the residual; mean, variance (3); subtract, scale, weight, bias */
    const int each = l->attributes.norm == NORM_LAYER ? 8 : 4;
    return (double)operand_count(&l->in[0]) * ((l->in[1].data != NULL) + each);
}

static double norm_backward_flops(const launch *l) { /* two row sums and the result; sums for weight and bias; dsum */
    const int each = l->attributes.norm == NORM_LAYER ? 12 : 9;
    return (double)operand_count(&l->in[0]) * (each + (l->out[2].data != NULL) + (l->in[1].data != NULL));
}

static double matmul_flops(const launch *l) {
    const attributes *a = &l->attributes;
    const double inner = (double)l->in[0].shape[a->transpose_a ? 0 : 1];
    const double sums = l->out[2].data != NULL ? (double)operand_count(&l->in[1]) : 0;
    const double each = 2 * inner + (l->in[2].data != NULL) + (a->gelu ? GELU_FLOPS : 0);
    return (double)operand_count(&l->out[0]) * each + sums;
}

static double rope_flops(const launch *l) { /* a rotation is three operations a value */
    const attributes *a = &l->attributes;
    return 3 * (double)l->in[0].shape[0] * (double)((a->heads + a->kv_heads) * a->head_width);
}

/* Where they go by the values of the first input: how many for each. */
static double flops_a_value(const launch *l) {
    switch (l->kind) {
    case OPERATION_EMBEDDING_BACKWARD:
    case OPERATION_POSITION_BACKWARD:
    case OPERATION_COLUMN_SUM:
    case OPERATION_SUM:
    case OPERATION_STEP_RESULT:
    case OPERATION_ALL_REDUCE:
    case OPERATION_REDUCE_SCATTER:
        return 1;
    case OPERATION_GRANULE_NORM:
        return 2;
    case OPERATION_CROSS_ENTROPY: /* maximum, subtract, exp, sum; subtract, exp, scale */
        return l->out[1].data != NULL ? 7 : 4;
    case OPERATION_GELU:
        return GELU_FLOPS;
    case OPERATION_SWIGLU_BACKWARD:
        return 10;
    case OPERATION_ADAMW:
        return 15;
    case OPERATION_GELU_BACKWARD:
        return 17;
    case OPERATION_EMBEDDING: /* what follows has a formula of its own */
    case OPERATION_NORM:
    case OPERATION_NORM_BACKWARD:
    case OPERATION_MATMUL:
    case OPERATION_ROPE:
    case OPERATION_ATTENTION:
    case OPERATION_ATTENTION_BACKWARD:
    case OPERATION_SWIGLU:
    case OPERATION_ADD:
    case OPERATION_FILL: /* and what follows moves values */
    case OPERATION_CAST:
    case OPERATION_COPY_IN:
    case OPERATION_COPY_OUT:
    case OPERATION_ALL_GATHER:
    case OPERATION_KIND_COUNT:
        break;
    }
    return 0;
}

double operation_flops(const launch *l) {
    switch (l->kind) {
    case OPERATION_EMBEDDING: /* an add where there are positions */
        return l->in[2].data != NULL ? (double)operand_count(&l->out[0]) : 0;
    case OPERATION_NORM:
        return norm_flops(l);
    case OPERATION_NORM_BACKWARD:
        return norm_backward_flops(l);
    case OPERATION_MATMUL:
        return matmul_flops(l);
    case OPERATION_ROPE:
        return rope_flops(l);
    case OPERATION_ATTENTION: /* q k^T and p v */
        return 4 * (double)l->attributes.head_width * attention_pairs(l, &l->in[0]);
    case OPERATION_ATTENTION_BACKWARD: /* q k^T again, dv, dp, dq, dk */
        return 10 * (double)l->attributes.head_width * attention_pairs(l, &l->in[1]);
    case OPERATION_SWIGLU: /* whose output is half its input */
        return 5 * (double)operand_count(&l->out[0]);
    case OPERATION_ADD:
        return (double)operand_count(&l->out[0]);
    default:
        return flops_a_value(l) * (double)operand_count(&l->in[0]);
    }
}

static double operand_bytes(const operand *o) {
    return o->data != NULL ? (double)operand_count(o) * (double)dtype_bytes(o->type) : 0;
}

double operation_bytes(const launch *l) {
    double bytes = 0;
    for (int i = 0; i < OPERATION_INPUTS; i++)
        bytes += operand_bytes(&l->in[i]);
    for (int o = 0; o < OPERATION_OUTPUTS; o++) /* an accumulator is read as well */
        bytes += operand_bytes(&l->out[o]) * ((l->accumulate >> o & 1) != 0 ? 2 : 1);
    if (l->kind == OPERATION_EMBEDDING) /* of the table only the rows of the tokens */
        bytes += operand_bytes(&l->out[0]) - operand_bytes(&l->in[1]);
    if (l->kind == OPERATION_EMBEDDING_BACKWARD && (l->accumulate & 1) != 0) /* likewise, read and written */
        bytes += 2 * ((double)(operand_count(&l->in[0]) * dtype_bytes(l->out[0].type)) - operand_bytes(&l->out[0]));
    return bytes;
}
