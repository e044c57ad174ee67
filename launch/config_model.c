/* Where the model's shape comes from: explicit keys, a preset, or a model folder. */
#include "engine/checked.h"
#include "launch/config.h"
#include "launch/config_suggest.h"
#include "launch/presets.h"

/* The shape keys of whole numbers, in the config and in the shape. */
typedef struct shape_key {
    size_t in_config, in_shape;
} shape_key;

#define SHAPE_KEY(name)                                                                                                \
    { offsetof(config, model.name), offsetof(model_shape, name) }
static const shape_key shape_keys[] = {
    SHAPE_KEY(layers),     SHAPE_KEY(width),        SHAPE_KEY(heads),      SHAPE_KEY(kv_heads),
    SHAPE_KEY(head_width), SHAPE_KEY(feed_forward), SHAPE_KEY(vocabulary), SHAPE_KEY(context),
};
enum { SHAPE_KEYS = sizeof shape_keys / sizeof *shape_keys };

static int64_t *config_size(const config *c, int i) {
    return (int64_t *)((char *)(uintptr_t)c + shape_keys[i].in_config);
}

static int64_t shape_size(const model_shape *s, int i) {
    return *(const int64_t *)((const char *)s + shape_keys[i].in_shape);
}

/* Keys given beside a model folder must say what it says. */
static bool agree_with_folder(const config *c, const model_shape *from, error *e) {
    const config_model *m = &c->model;
    static const char advice[] = "drop the key or correct it";
    if (m->family >= 0 && m->family != (int)from->family)
        return config_refuse(c, &m->family, e, "%s holds a %s model; %s", m->from, model_family_name(from->family),
                             advice);
    for (int i = 0; i < SHAPE_KEYS; i++) {
        const int64_t *key = config_size(c, i);
        if (config_given(c, key) && *key != shape_size(from, i))
            return config_refuse(c, key, e, "%s says %lld; %s", m->from, (long long)shape_size(from, i), advice);
    }
    if (config_given(c, &m->tied) && (m->tied == CONFIG_YES) != from->tied)
        return config_refuse(c, &m->tied, e, "%s says %s; %s", m->from, from->tied ? "yes" : "no", advice);
    if (config_given(c, &m->norm_epsilon) && m->norm_epsilon != from->norm_epsilon)
        return config_refuse(c, &m->norm_epsilon, e, "%s says %g; %s", m->from, from->norm_epsilon, advice);
    if (config_given(c, &m->rope_theta) && m->rope_theta != from->rope_theta)
        return config_refuse(c, &m->rope_theta, e, "%s says %g; %s", m->from, from->rope_theta, advice);
    return true;
}

/* GPT-2 has a key for neither: they follow from heads and width, whatever the preset's were. */
static bool follows_in_gpt2(const config *c, const int64_t *key) {
    return key == &c->model.kv_heads || key == &c->model.head_width;
}

/* Fills the keys that were not given. */
static void fill_from(config *c, const model_shape *base) {
    config_model *m = &c->model;
    m->family = (int)base->family;
    for (int i = 0; i < SHAPE_KEYS; i++) {
        int64_t *key = config_size(c, i);
        if (!config_given(c, key) && !(base->family == FAMILY_GPT2 && follows_in_gpt2(c, key)))
            *key = shape_size(base, i);
    }
    if (!config_given(c, &m->tied))
        m->tied = base->tied ? CONFIG_YES : CONFIG_NO;
    if (!config_given(c, &m->norm_epsilon))
        m->norm_epsilon = base->norm_epsilon;
    if (!config_given(c, &m->rope_theta))
        m->rope_theta = base->rope_theta;
    if (!config_given(c, &m->initialisation))
        m->initialisation = base->initialisation;
}

static bool find_base(const config *c, const model_shape *from, const model_shape **base, error *e) {
    const config_model *m = &c->model;
    check((m->from != NULL) == (from != NULL), "the model folder was not read");
    *base = from;
    if (m->preset >= 0 && from != NULL)
        return config_refuse(c, &m->preset, e, "the shape comes from the folder of from = %s; give one of the two",
                             m->from);
    if (from != NULL)
        return agree_with_folder(c, from, e);
    if (m->preset < 0)
        return true;
    *base = preset_shape(m->preset);
    if (m->family >= 0 && m->family != (int)(*base)->family)
        return config_refuse(c, &m->family, e, "the preset's family is %s", model_family_name((*base)->family));
    return true;
}

static bool need(const config *c, const int64_t *key, error *e) {
    return *key > 0 || config_refuse(c, key, e, "required key is missing; give it, or preset or from");
}

static bool heads_fit(const config *c, error *e) {
    const config_model *m = &c->model;
    char values[SUGGESTION];
    if (m->head_width == 0 && m->width % m->heads != 0)
        return config_refuse(c, &m->heads, e, "does not divide width %lld; %s", (long long)m->width,
                             suggest_divisors(m->heads, m->width, values));
    return true;
}

/* What the family derives from other keys. */
static bool derive(config *c, int64_t tokenizer_vocabulary, error *e) {
    config_model *m = &c->model;
    bool llama = m->family == FAMILY_LLAMA;
    if (!need(c, &m->layers, e) || !need(c, &m->width, e) || !need(c, &m->heads, e) || !need(c, &m->context, e))
        return false;
    if (!heads_fit(c, e))
        return false;
    if (m->kv_heads == 0)
        m->kv_heads = m->heads;
    if (m->head_width == 0)
        m->head_width = m->width / m->heads;
    if (m->feed_forward == 0)
        m->feed_forward = llama ? round_up(divide_up(8 * m->width, 3), 64) : 4 * m->width;
    if (m->vocabulary == 0)
        m->vocabulary = tokenizer_vocabulary;
    if (m->tied < 0)
        m->tied = llama ? CONFIG_NO : CONFIG_YES;
    if (c->train.sequence == 0)
        c->train.sequence = m->context;
    return true;
}

static bool check_gpt2(const config *c, error *e) {
    const config_model *m = &c->model;
    if (config_given(c, &m->rope_theta))
        return config_refuse(c, &m->rope_theta, e, "gpt2 learns its positions; the key is llama's");
    if (m->kv_heads != m->heads)
        return config_refuse(c, &m->kv_heads, e, "gpt2 has as many as heads, %lld; drop the key", (long long)m->heads);
    if (m->head_width * m->heads != m->width)
        return config_refuse(c, &m->head_width, e, "gpt2 has width / heads, %lld / %lld; drop the key",
                             (long long)m->width, (long long)m->heads);
    return true;
}

static bool check_llama(const config *c, error *e) {
    const config_model *m = &c->model;
    char values[SUGGESTION];
    if (m->heads % m->kv_heads != 0)
        return config_refuse(c, &m->kv_heads, e, "does not divide heads %lld; %s", (long long)m->heads,
                             suggest_divisors(m->kv_heads, m->heads, values));
    if (m->head_width % 2 != 0)
        return config_refuse(c, &m->head_width, e, "the rotary embedding turns pairs; %s",
                             suggest_multiples(m->head_width, 2, values));
    return true;
}

bool config_resolve_model(config *c, const model_shape *from, int64_t tokenizer_vocabulary, model_shape *shape,
                          error *e) {
    config_model *m = &c->model;
    const model_shape *base;
    if (!find_base(c, from, &base, e))
        return false;
    if (base != NULL)
        fill_from(c, base);
    if (m->family < 0)
        return config_refuse(c, &m->family, e, "required key is missing; give gpt2 or llama, or preset or from");
    if (!derive(c, tokenizer_vocabulary, e))
        return false;
    if (m->family == FAMILY_GPT2 ? !check_gpt2(c, e) : !check_llama(c, e))
        return false;
    if (m->vocabulary == 0)
        return config_refuse(c, &m->vocabulary, e, "required key is missing; token files do not say it");
    *shape = (model_shape){.family = (model_family)m->family,
                           .layers = m->layers,
                           .width = m->width,
                           .heads = m->heads,
                           .kv_heads = m->kv_heads,
                           .head_width = m->head_width,
                           .feed_forward = m->feed_forward,
                           .vocabulary = m->vocabulary,
                           .context = m->context,
                           .tied = m->tied == CONFIG_YES,
                           .norm_epsilon = m->norm_epsilon,
                           .rope_theta = m->rope_theta,
                           .rope = base != NULL ? base->rope : (rope_scaling){0},
                           .initialisation = m->initialisation};
    return true;
}
