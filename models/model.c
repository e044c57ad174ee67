/* Shapes, parameters and initial values of the families; the operations are in forward.c. */
#include "models/model.h"

#include "engine/checked.h"
#include "engine/rng.h"

#include <math.h>
#include <stdlib.h>

const char *model_family_name(model_family family) {
    static const char *const names[FAMILY_COUNT] = {"gpt2", "llama"};
    return names[family];
}

/* ---- parameters ---- */

static parameter *add_parameter(model *m, int32_t unit, const char *prefix, const char *name, initial_value initial,
                                int64_t rows, int64_t columns) {
    parameter_list *list = &m->list;
    list->items = memory_grow(list->items, (size_t)list->count + 1, sizeof *list->items);
    parameter *p = &list->items[list->count++];
    *p = (parameter){.name = memory_format("%s.%s", prefix, name),
                     .unit = unit,
                     .dimensions = columns > 0 ? 2 : 1,
                     .shape = {rows, columns > 0 ? columns : 1},
                     .initial = initial,
                     .decay = columns > 0};
    list->elements += must_multiply(p->shape[0], p->shape[1]);
    return p;
}

static void add_part(parameter *p, int64_t rows, char *name) {
    p->parts[p->part_count++] = (parameter_part){name, rows};
}

/* A parameter that is one tensor in Hugging Face's files. */
static void add_whole(model *m, int32_t unit, const char *prefix, const char *name, initial_value initial, int64_t rows,
                      int64_t columns, char *file_name) {
    add_part(add_parameter(m, unit, prefix, name, initial, rows, columns), rows, file_name);
}

static void gpt2_embedding(model *m, int32_t unit) {
    const model_shape *s = &m->shape;
    add_whole(m, unit, "embedding", "tokens", INITIAL_NORMAL, s->vocabulary, s->width,
              memory_copy_string("transformer.wte.weight"));
    add_whole(m, unit, "embedding", "positions", INITIAL_NORMAL, s->context, s->width,
              memory_copy_string("transformer.wpe.weight"));
}

static void gpt2_block(model *m, int32_t unit, int64_t i) {
    const model_shape *s = &m->shape;
    const int64_t c = s->width, q = s->heads * s->head_width, f = s->feed_forward;
    const struct {
        const char *name, *file;
        initial_value initial;
        int64_t rows, columns; /* columns 0: one dimension */
    } table[] = {
        {"norm1.weight", "ln_1.weight", INITIAL_ONE, c, 0},
        {"norm1.bias", "ln_1.bias", INITIAL_ZERO, c, 0},
        {"attention.qkv", "attn.c_attn.weight", INITIAL_NORMAL, c, 3 * q},
        {"attention.qkv_bias", "attn.c_attn.bias", INITIAL_ZERO, 3 * q, 0},
        {"attention.output", "attn.c_proj.weight", INITIAL_RESIDUAL, q, c},
        {"attention.output_bias", "attn.c_proj.bias", INITIAL_ZERO, c, 0},
        {"norm2.weight", "ln_2.weight", INITIAL_ONE, c, 0},
        {"norm2.bias", "ln_2.bias", INITIAL_ZERO, c, 0},
        {"feed_forward.up", "mlp.c_fc.weight", INITIAL_NORMAL, c, f},
        {"feed_forward.up_bias", "mlp.c_fc.bias", INITIAL_ZERO, f, 0},
        {"feed_forward.down", "mlp.c_proj.weight", INITIAL_RESIDUAL, f, c},
        {"feed_forward.down_bias", "mlp.c_proj.bias", INITIAL_ZERO, c, 0},
    };
    char *prefix = memory_format("block%lld", (long long)i);
    for (size_t k = 0; k < sizeof table / sizeof *table; k++)
        add_whole(m, unit, prefix, table[k].name, table[k].initial, table[k].rows, table[k].columns,
                  memory_format("transformer.h.%lld.%s", (long long)i, table[k].file));
    free(prefix);
}

static void gpt2_norm(model *m, int32_t unit) {
    add_whole(m, unit, "head", "norm.weight", INITIAL_ONE, m->shape.width, 0,
              memory_copy_string("transformer.ln_f.weight"));
    add_whole(m, unit, "head", "norm.bias", INITIAL_ZERO, m->shape.width, 0,
              memory_copy_string("transformer.ln_f.bias"));
}

static void llama_embedding(model *m, int32_t unit) {
    add_whole(m, unit, "embedding", "tokens", INITIAL_NORMAL, m->shape.vocabulary, m->shape.width,
              memory_copy_string("model.embed_tokens.weight"));
}

static char *llama_name(int64_t block, const char *rest) {
    return memory_format("model.layers.%lld.%s.weight", (long long)block, rest);
}

static void llama_block(model *m, int32_t unit, int64_t i) {
    const model_shape *s = &m->shape;
    const int64_t c = s->width, q = s->heads * s->head_width, kv = s->kv_heads * s->head_width, f = s->feed_forward;
    char *prefix = memory_format("block%lld", (long long)i);
    add_whole(m, unit, prefix, "norm1.weight", INITIAL_ONE, c, 0, llama_name(i, "input_layernorm"));
    parameter *qkv = add_parameter(m, unit, prefix, "attention.qkv", INITIAL_NORMAL, q + 2 * kv, c);
    add_part(qkv, q, llama_name(i, "self_attn.q_proj"));
    add_part(qkv, kv, llama_name(i, "self_attn.k_proj"));
    add_part(qkv, kv, llama_name(i, "self_attn.v_proj"));
    add_whole(m, unit, prefix, "attention.output", INITIAL_RESIDUAL, c, q, llama_name(i, "self_attn.o_proj"));
    add_whole(m, unit, prefix, "norm2.weight", INITIAL_ONE, c, 0, llama_name(i, "post_attention_layernorm"));
    parameter *gate_up = add_parameter(m, unit, prefix, "feed_forward.gate_up", INITIAL_NORMAL, 2 * f, c);
    add_part(gate_up, f, llama_name(i, "mlp.gate_proj"));
    add_part(gate_up, f, llama_name(i, "mlp.up_proj"));
    add_whole(m, unit, prefix, "feed_forward.down", INITIAL_RESIDUAL, c, f, llama_name(i, "mlp.down_proj"));
    free(prefix);
}

static void llama_norm(model *m, int32_t unit) {
    add_whole(m, unit, "head", "norm.weight", INITIAL_ONE, m->shape.width, 0, memory_copy_string("model.norm.weight"));
}

/* What differs between the families when parameters are declared. */
static const struct {
    void (*embedding)(model *m, int32_t unit);
    void (*block)(model *m, int32_t unit, int64_t block);
    void (*norm)(model *m, int32_t unit);
} families[FAMILY_COUNT] = {
    [FAMILY_GPT2] = {gpt2_embedding, gpt2_block, gpt2_norm},
    [FAMILY_LLAMA] = {llama_embedding, llama_block, llama_norm},
};

static int32_t add_unit(model *m, char *name) {
    parameter_list *list = &m->list;
    list->unit_names = memory_grow(list->unit_names, (size_t)list->unit_count + 1, sizeof *list->unit_names);
    list->unit_names[list->unit_count] = name;
    return list->unit_count++;
}

static char *block_unit_name(int64_t first, int64_t last) {
    if (first == last)
        return memory_format("block%lld", (long long)first);
    return memory_format("block%lld-%lld", (long long)first, (long long)last);
}

model *model_create(const model_shape *shape, int64_t unit_blocks) {
    model *m = memory_allocate(1, sizeof *m);
    m->shape = *shape;
    const bool tied = shape->tied;
    int32_t unit = add_unit(m, memory_copy_string(tied ? "root" : "embedding"));
    families[shape->family].embedding(m, unit);
    if (tied)
        families[shape->family].norm(m, unit);
    for (int64_t block = 0; block < shape->layers; block++) {
        if (block % unit_blocks == 0)
            unit = add_unit(m, block_unit_name(block, minimum(block + unit_blocks, shape->layers) - 1));
        families[shape->family].block(m, unit, block);
    }
    if (tied)
        return m;
    unit = add_unit(m, memory_copy_string("head"));
    families[shape->family].norm(m, unit);
    add_whole(m, unit, "head", "weight", INITIAL_NORMAL, shape->vocabulary, shape->width,
              memory_copy_string("lm_head.weight"));
    return m;
}

void model_destroy(model *m) {
    if (m == NULL)
        return;
    for (int32_t i = 0; i < m->list.count; i++) {
        free(m->list.items[i].name);
        for (int k = 0; k < m->list.items[i].part_count; k++)
            free(m->list.items[i].parts[k].name);
    }
    for (int32_t u = 0; u < m->list.unit_count; u++)
        free(m->list.unit_names[u]);
    free(m->list.items);
    free(m->list.unit_names);
    free(m);
}

/* ---- numbers about the model ---- */

double model_flops_per_token(const model *m, int64_t sequence) {
    const model_shape *s = &m->shape;
    double matmul = s->tied ? 0 : -(double)s->vocabulary * (double)s->width; /* an untied table is only looked up */
    for (int32_t i = 0; i < m->list.count; i++)
        if (m->list.items[i].dimensions == 2)
            matmul += (double)parameter_elements(&m->list.items[i]);
    if (s->family == FAMILY_GPT2)
        matmul -= (double)s->context * (double)s->width; /* positions are only looked up */
    return 6 * matmul + 6 * (double)s->layers * (double)s->heads * (double)s->head_width * (double)sequence;
}

/* Llama 3 stretches low frequencies by `factor`, leaves high ones and blends in between. */
static double scaled_frequency(const rope_scaling *r, double frequency) {
    if (!r->llama3)
        return frequency;
    const double turns = (double)r->original_context * frequency / (2 * M_PI); /* over the original context */
    if (turns < r->low_frequency_factor)
        return frequency / r->factor;
    if (turns > r->high_frequency_factor)
        return frequency;
    const double smooth = (turns - r->low_frequency_factor) / (r->high_frequency_factor - r->low_frequency_factor);
    return (1 - smooth) * frequency / r->factor + smooth * frequency;
}

void model_rope_table(const model_shape *shape, int64_t sequence, float *cosine, float *sine) {
    const int64_t half = shape->head_width / 2;
    for (int64_t j = 0; j < half; j++) {
        const double plain = pow(shape->rope_theta, -2.0 * (double)j / (double)shape->head_width);
        const double frequency = scaled_frequency(&shape->rope, plain);
        for (int64_t t = 0; t < sequence; t++) {
            cosine[t * half + j] = (float)cos((double)t * frequency);
            sine[t * half + j] = (float)sin((double)t * frequency);
        }
    }
}

void model_initial_values(const model *m, int32_t index, uint64_t seed, int64_t first, int64_t count, float *values) {
    const parameter *p = &m->list.items[index];
    double deviation = m->shape.initialisation;
    if (p->initial == INITIAL_RESIDUAL)
        deviation /= sqrt(2.0 * (double)m->shape.layers);
    if (p->initial == INITIAL_ONE || p->initial == INITIAL_ZERO) {
        for (int64_t i = 0; i < count; i++)
            values[i] = p->initial == INITIAL_ONE ? 1.0f : 0.0f;
        return;
    }
    rng_normals(seed, (uint64_t)index, (uint64_t)first, (uint64_t)count, values);
    for (int64_t i = 0; i < count; i++)
        values[i] *= (float)deviation;
}
