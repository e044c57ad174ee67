#include "engine/autodiff.h"

#include "engine/checked.h"
#include "engine/device/update.h"

#include <stdlib.h>

typedef struct autodiff_state {
    const program *forward;
    const bool *keep; /* NULL: all */
    const precision_settings *precision;
    program *p;           /* the program being written; tensors of the forward program keep their numbers */
    int32_t known;        /* tensors of the forward program: the length of the arrays below */
    int32_t *maker;       /* [tensors]: forward operation that writes it; NO_OPERATION */
    tensor_id *again;     /* [tensors]: what backward reads in place of it; NO_TENSOR until needed */
    tensor_id *gradient;  /* [tensors]: gradient of a tensor, NO_TENSOR until something contributes */
    bool *written;        /* [tensors]: a parameter's gradient has its first value */
    tensor_id loss_scale; /* NO_TENSOR: gradients are not scaled */
} autodiff_state;

static tensor_id gradient_of(const autodiff_state *a, tensor_id t) {
    return t == NO_TENSOR || t >= a->known ? NO_TENSOR : a->gradient[t];
}

/* ---- recomputation ---- */

static tensor_id needed(autodiff_state *a, tensor_id t);

/* A norm whose residual sum is at hand starts from that. */
static void restart_norm(autodiff_state *a, operation *o) {
    if (o->kind != OPERATION_NORM || o->out[1] == NO_TENSOR || !a->keep[o->out[1]])
        return;
    o->in[0] = o->out[1];
    o->in[1] = o->out[1] = NO_TENSOR;
}

static void emit_again(autodiff_state *a, const operation *f) {
    operation o = *f;
    restart_norm(a, &o);
    for (int k = 0; k < OPERATION_INPUTS; k++)
        o.in[k] = needed(a, o.in[k]);
    for (int k = 0; k < OPERATION_OUTPUTS; k++) {
        if (o.out[k] == NO_TENSOR)
            continue;
        const tensor x = a->p->tensors[o.out[k]];
        const tensor_id made = program_tensor(a->p, x.name, x.role, x.type, OPERAND_DIMENSIONS, x.shape);
        if (!a->keep[o.out[k]])
            a->again[o.out[k]] = made;
        o.out[k] = made;
    }
    o.phase = PHASE_BACKWARD;
    program_append(a->p, &o);
}

/* The tensor to read in backward for a tensor of the forward program. */
static tensor_id needed(autodiff_state *a, tensor_id t) {
    if (t == NO_TENSOR || t >= a->known || a->keep == NULL || a->keep[t])
        return t;
    if (a->again[t] == NO_TENSOR)
        emit_again(a, &a->forward->operations[a->maker[t]]);
    return a->again[t];
}

/* ---- gradients ---- */

static char *gradient_name(const autodiff_state *a, tensor_id t) {
    return memory_format("%s.gradient", a->p->tensors[t].name);
}

/* A new tensor of the shape of t, for its gradient: an activation's has its type. */
static tensor_id gradient_like(autodiff_state *a, tensor_id t, tensor_role role) {
    char *name = gradient_name(a, t);
    const tensor shape = a->p->tensors[t];
    const dtype type = role == ROLE_GRADIENT ? a->precision->gradient : shape.type;
    tensor_id made = program_tensor(a->p, name, role, type, OPERAND_DIMENSIONS, shape.shape);
    free(name);
    return made;
}

/* Where the gradient of an activation is to be written: a tensor of its own or, for a view, the same view of its
 * base's gradient. */
static tensor_id destination(autodiff_state *a, tensor_id t) {
    const tensor_id base = a->p->tensors[t].base;
    if (base == NO_TENSOR)
        return gradient_like(a, t, ROLE_ACTIVATION);
    if (a->gradient[base] == NO_TENSOR)
        a->gradient[base] = gradient_like(a, base, ROLE_ACTIVATION);
    const tensor view = a->p->tensors[t];
    char *name = gradient_name(a, t);
    tensor_id made = program_view(a->p, name, a->gradient[base], view.offset, OPERAND_DIMENSIONS, view.shape);
    free(name);
    return made;
}

static void add_gradients(autodiff_state *a, tensor_id t, tensor_id more, const operation *forward) {
    check(a->p->tensors[t].base == NO_TENSOR, "two gradients of the view %s", a->p->tensors[t].name);
    operation add = operation_make(OPERATION_ADD, PHASE_BACKWARD, forward->unit);
    add.in[0] = a->gradient[t];
    add.in[1] = more;
    add.out[0] = gradient_like(a, t, ROLE_ACTIVATION);
    program_append(a->p, &add);
    a->gradient[t] = add.out[0];
}

/* `made` holds a contribution to the gradient of activation t. */
static void contribute(autodiff_state *a, tensor_id t, tensor_id made, const operation *forward) {
    if (t == NO_TENSOR)
        return;
    if (a->gradient[t] == NO_TENSOR)
        a->gradient[t] = made;
    else
        add_gradients(a, t, made, forward);
}

/* The gradient of a parameter, as output k of an operation: overwritten by the first, added to by the others. */
static void parameter_output(autodiff_state *a, operation *o, int k, tensor_id t) {
    if (a->gradient[t] == NO_TENSOR) {
        a->gradient[t] = gradient_like(a, t, ROLE_GRADIENT);
        a->p->tensors[a->gradient[t]].unit = a->p->tensors[t].unit;
        a->p->tensors[a->gradient[t]].parameter = a->p->tensors[t].parameter;
    }
    o->out[k] = a->gradient[t];
    if (a->written[t])
        o->accumulate |= 1u << k;
    a->written[t] = true;
}

static operation backward_of(const operation *forward, operation_kind kind) {
    operation o = operation_make(kind, PHASE_BACKWARD, forward->unit);
    o.attributes = forward->attributes;
    o.pass = forward->pass;
    return o;
}

static tensor_id sorted_order(autodiff_state *a, const operation *forward) {
    const tensor tokens = a->p->tensors[forward->in[0]];
    operation copy = operation_make(OPERATION_COPY_IN, PHASE_BACKWARD, forward->unit);
    copy.stream = STREAM_COPY;
    copy.out[0] = program_tensor(a->p, "order", ROLE_INPUT, DTYPE_I32, OPERAND_DIMENSIONS, tokens.shape);
    copy.attributes.host = HOST_ORDER;
    program_append(a->p, &copy);
    return copy.out[0];
}

static void embedding_rule(autodiff_state *a, const operation *f) {
    const tensor_id dout = gradient_of(a, f->out[0]);
    operation table = backward_of(f, OPERATION_EMBEDDING_BACKWARD);
    table.in[0] = dout;
    table.in[1] = f->in[0];
    table.in[2] = sorted_order(a, f);
    parameter_output(a, &table, 0, f->in[1]);
    program_append(a->p, &table);
    if (f->in[2] == NO_TENSOR)
        return;
    operation positions = backward_of(f, OPERATION_POSITION_BACKWARD);
    positions.in[0] = dout;
    parameter_output(a, &positions, 0, f->in[2]);
    program_append(a->p, &positions);
}

/* x and residual are summed, so they share one gradient. Without a residual the sum is x itself. */
static void norm_rule(autodiff_state *a, const operation *f) {
    const tensor_id residual = f->in[1], sum = residual == NO_TENSOR ? f->in[0] : f->out[1];
    operation o = backward_of(f, OPERATION_NORM_BACKWARD);
    o.in[0] = gradient_of(a, f->out[0]);
    o.in[1] = gradient_of(a, sum);
    o.in[2] = needed(a, sum);
    o.in[3] = needed(a, f->out[2]);
    o.in[4] = f->in[2];
    o.out[0] = destination(a, f->in[0]);
    parameter_output(a, &o, 1, f->in[2]);
    if (f->in[3] != NO_TENSOR)
        parameter_output(a, &o, 2, f->in[3]);
    if (residual == NO_TENSOR) /* what x's other readers contributed is in o.in[1] and need not be added again */
        a->gradient[f->in[0]] = NO_TENSOR;
    program_append(a->p, &o);
    contribute(a, f->in[0], o.out[0], f);
    contribute(a, residual, o.out[0], f);
}

/* c = a op(b) + bias with b and bias parameters:  db = a^T dc (or its transpose),  da = dc op(b)^T. */
static void matmul_rule(autodiff_state *a, const operation *f) {
    const tensor_id dc = gradient_of(a, f->out[0]), left = needed(a, f->in[0]);
    check(!f->attributes.transpose_a, "no backward rule for a matmul with a transposed left operand");
    if (f->in[2] != NO_TENSOR) {
        operation bias = backward_of(f, OPERATION_COLUMN_SUM);
        bias.in[0] = dc;
        parameter_output(a, &bias, 0, f->in[2]);
        program_append(a->p, &bias);
    }
    operation weight = backward_of(f, OPERATION_MATMUL);
    weight.in[0] = f->attributes.transpose_b ? dc : left;
    weight.in[1] = f->attributes.transpose_b ? left : dc;
    weight.attributes.transpose_a = true;
    weight.attributes.transpose_b = false;
    parameter_output(a, &weight, 0, f->in[1]);
    program_append(a->p, &weight);
    operation input = backward_of(f, OPERATION_MATMUL);
    input.in[0] = dc;
    input.in[1] = f->in[1];
    input.attributes.transpose_b = !f->attributes.transpose_b;
    input.out[0] = destination(a, f->in[0]);
    program_append(a->p, &input);
    contribute(a, f->in[0], input.out[0], f);
}

static void rope_rule(autodiff_state *a, const operation *f) {
    operation o = backward_of(f, OPERATION_ROPE);
    o.in[0] = gradient_of(a, f->out[0]);
    o.in[1] = f->in[1];
    o.in[2] = f->in[2];
    o.out[0] = destination(a, f->in[0]);
    o.attributes.inverse = !f->attributes.inverse;
    program_append(a->p, &o);
    contribute(a, f->in[0], o.out[0], f);
}

static void attention_rule(autodiff_state *a, const operation *f) {
    operation o = backward_of(f, OPERATION_ATTENTION_BACKWARD);
    o.in[0] = gradient_of(a, f->out[0]);
    o.in[1] = needed(a, f->in[0]);
    o.in[2] = needed(a, f->out[0]);
    o.in[3] = needed(a, f->out[1]);
    o.out[0] = destination(a, f->in[0]);
    program_append(a->p, &o);
    contribute(a, f->in[0], o.out[0], f);
}

static void activation_rule(autodiff_state *a, const operation *f, operation_kind backward) {
    operation o = backward_of(f, backward);
    o.in[0] = gradient_of(a, f->out[0]);
    o.in[1] = needed(a, f->in[0]);
    o.out[0] = destination(a, f->in[0]);
    program_append(a->p, &o);
    contribute(a, f->in[0], o.out[0], f);
}

static void gelu_rule(autodiff_state *a, const operation *f) {
    activation_rule(a, f, OPERATION_GELU_BACKWARD);
}

static void swiglu_rule(autodiff_state *a, const operation *f) {
    activation_rule(a, f, OPERATION_SWIGLU_BACKWARD);
}

static void add_rule(autodiff_state *a, const operation *f) {
    contribute(a, f->in[0], gradient_of(a, f->out[0]), f);
    contribute(a, f->in[1], gradient_of(a, f->out[0]), f);
}

/* Copies in, and the losses and their sum (the gradient comes out of cross_entropy itself), have nothing behind. */
static void nothing_rule(autodiff_state *a, const operation *f) {
    (void)a;
    (void)f;
}

typedef void rule(autodiff_state *a, const operation *forward);
static rule *const rules[OPERATION_KIND_COUNT] = {
    [OPERATION_EMBEDDING] = embedding_rule,   [OPERATION_NORM] = norm_rule,
    [OPERATION_MATMUL] = matmul_rule,         [OPERATION_ROPE] = rope_rule,
    [OPERATION_ATTENTION] = attention_rule,   [OPERATION_GELU] = gelu_rule,
    [OPERATION_SWIGLU] = swiglu_rule,         [OPERATION_ADD] = add_rule,
    [OPERATION_CROSS_ENTROPY] = nothing_rule, [OPERATION_COPY_IN] = nothing_rule,
    [OPERATION_SUM] = nothing_rule,
};

/* cross_entropy makes the gradient of its logits on the way. */
static void forward_operation(autodiff_state *a, const operation *f) {
    operation o = *f;
    if (o.kind == OPERATION_CROSS_ENTROPY) {
        o.in[3] = a->loss_scale;
        o.out[1] = gradient_like(a, o.in[0], ROLE_ACTIVATION);
        a->gradient[o.in[0]] = o.out[1];
    }
    program_append(a->p, &o);
}

/* Rules run backwards, so all readers of f's outputs have contributed to their gradients. */
static void backward_operation(autodiff_state *a, const operation *f) {
    check(rules[f->kind] != NULL, "no backward rule for %s", operation_signature_of(f->kind)->name);
    rules[f->kind](a, f);
}

static void fill_missing(autodiff_state *a) {
    for (tensor_id t = 0; t < a->known; t++) {
        if (a->p->tensors[t].role != ROLE_PARAMETER || a->written[t])
            continue;
        operation fill = operation_make(OPERATION_FILL, PHASE_BACKWARD, a->p->tensors[t].unit);
        parameter_output(a, &fill, 0, t);
        program_append(a->p, &fill);
    }
}

static program *copy_tensors(const program *forward) {
    program *p = program_create(forward->unit_count, (const char *const *)forward->unit_names);
    for (tensor_id t = 0; t < forward->tensor_count; t++) {
        const tensor *x = &forward->tensors[t];
        if (x->base == NO_TENSOR)
            program_tensor(p, x->name, x->role, x->type, OPERAND_DIMENSIONS, x->shape);
        else
            program_view(p, x->name, x->base, x->offset, OPERAND_DIMENSIONS, x->shape);
        p->tensors[t].unit = x->unit;
        p->tensors[t].parameter = x->parameter;
        p->tensors[t].part = x->part;
        p->tensors[t].block = x->block;
    }
    return p;
}

/* The forward operations, each chunk of the head followed by its backward. */
static void forward_pass(autodiff_state *a) {
    const int32_t count = a->forward->operation_count;
    for (int32_t i = 0; i < count;) {
        const operation *list = a->forward->operations;
        const int32_t chunk = list[i].chunk;
        int32_t end = i;
        do
            forward_operation(a, &list[end++]);
        while (chunk != NO_CHUNK && end < count && list[end].chunk == chunk);
        for (int32_t k = end - 1; chunk != NO_CHUNK && k >= i; k--)
            backward_operation(a, &list[k]);
        i = end;
    }
}

static void prepare(autodiff_state *a) {
    a->gradient = memory_allocate((size_t)a->known, sizeof *a->gradient);
    a->written = memory_allocate((size_t)a->known, sizeof *a->written);
    a->again = memory_allocate((size_t)a->known, sizeof *a->again);
    a->maker = memory_allocate((size_t)a->known, sizeof *a->maker);
    for (tensor_id t = 0; t < a->known; t++) {
        a->gradient[t] = a->again[t] = NO_TENSOR;
        a->maker[t] = NO_OPERATION;
    }
    for (int32_t i = 0; i < a->forward->operation_count; i++)
        for (int k = 0; k < OPERATION_OUTPUTS; k++)
            if (a->forward->operations[i].out[k] != NO_TENSOR)
                a->maker[a->forward->operations[i].out[k]] = i;
}

program *autodiff(const program *forward, const bool *keep, const precision_settings *precision) {
    autodiff_state a = {.forward = forward,
                        .keep = keep,
                        .precision = precision,
                        .p = copy_tensors(forward),
                        .known = forward->tensor_count,
                        .loss_scale = NO_TENSOR};
    prepare(&a);
    if (precision->loss_scale > 0)
        a.loss_scale = program_tensor(a.p, "loss_scale", ROLE_MOMENT, DTYPE_F64, 1, (int64_t[]){LOSS_SCALE_COUNT});
    forward_pass(&a);
    for (int32_t i = forward->operation_count - 1; i >= 0; i--)
        if (forward->operations[i].chunk == NO_CHUNK)
            backward_operation(&a, &forward->operations[i]);
    fill_missing(&a);
    free(a.gradient);
    free(a.written);
    free(a.again);
    free(a.maker);
    return a.p;
}
