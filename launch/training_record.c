#include "launch/training_record.h"

#include "engine/checked.h"
#include "launch/data_digest.h"

#include <stdlib.h>
#include <string.h>

/* ---- making ---- */

static json_t *rope_json(const rope_scaling *r) {
    if (!r->llama3)
        return json_null();
    return json_pack("{s:f, s:f, s:f, s:I}", "factor", r->factor, "low_frequency_factor", r->low_frequency_factor,
                     "high_frequency_factor", r->high_frequency_factor, "original_context",
                     (json_int_t)r->original_context);
}

static json_t *shape_json(const model_shape *s) {
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:f, s:f, s:o}", "family",
                     model_family_name(s->family), "layers", (json_int_t)s->layers, "width", (json_int_t)s->width,
                     "heads", (json_int_t)s->heads, "kv_heads", (json_int_t)s->kv_heads, "head_width",
                     (json_int_t)s->head_width, "feed_forward", (json_int_t)s->feed_forward, "vocabulary",
                     (json_int_t)s->vocabulary, "context", (json_int_t)s->context, "tied", (int)s->tied, "norm_epsilon",
                     s->norm_epsilon, "rope_theta", s->rope_theta, "rope_scaling", rope_json(&s->rope));
}

static json_t *data_json(const config *c, const data *d, json_t *resolved) {
    json_t *of = json_object(), *order = json_object_get(json_object_get(resolved, "data"), "order");
    json_object_set_new(of, "files", data_digest(d));
    json_object_set_new(of, "tokens", json_integer(data_describe(d).tokens));
    json_object_set(of, "order", order);
    json_object_set_new(of, "seed", json_integer(c->train.seed));
    return of;
}

static json_t *position_json(const position *at) {
    json_t *made = json_pack("{s:I, s:I, s:i}", "windows", (json_int_t)at->windows, "tokens", (json_int_t)at->tokens,
                             "skipped", at->skipped);
    if (at->loss_scale > 0) {
        json_object_set_new(made, "loss_scale", json_real(at->loss_scale));
        json_object_set_new(made, "good_steps", json_real(at->good_steps));
    }
    return made;
}

json_t *training_record(const config *c, const model_shape *shape, const data *d, int ranks, position at) {
    json_t *record = json_object(), *mathematics = json_object(), *resolved = config_json(c);
    json_object_set_new(mathematics, "model", shape_json(shape));
    json_object_set(mathematics, "optimizer", json_object_get(json_object_get(resolved, "optimizer"), "kind"));
    json_object_set_new(mathematics, "data", data_json(c, d, resolved));
    json_object_set_new(mathematics, "batch", json_integer(c->train.global_batch));
    json_object_set_new(mathematics, "sequence", json_integer(c->train.sequence));
    json_object_set_new(record, "position", position_json(&at));
    json_object_set_new(record, "ranks", json_integer(ranks));
    json_object_set_new(record, "mathematics", mathematics);
    json_object_set_new(record, "config", resolved);
    return record;
}

/* ---- comparing ---- */

/* The innermost member in which the two differ; *name grows by its path. */
static void find_difference(const json_t **saved, const json_t **present, char **name) {
    const char *key;
    json_t *value;
    if (!json_is_object(*present) || !json_is_object(*saved))
        return;
    json_object_foreach((json_t *)(uintptr_t)*present, key, value) {
        const json_t *other = json_object_get(*saved, key);
        if (other != NULL && json_equal(other, value))
            continue;
        char *longer = memory_format("%s%s%s", *name, **name == '\0' ? "" : ".", key);
        free(*name);
        *name = longer;
        *saved = other;
        *present = value;
        find_difference(saved, present, name);
        return;
    }
}

static char *value_text(const json_t *value) {
    char *text = value != NULL ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    return text != NULL ? text : memory_copy_string("nothing");
}

/* The config's word for a member of the mathematics. */
static const char *key_of(const char *name) {
    static const char *const keys[][2] = {{"batch", "train.global_batch"},
                                          {"sequence", "train.sequence"},
                                          {"optimizer", "optimizer.kind"},
                                          {"data.seed", "train.seed"}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(name, keys[i][0]) == 0)
            return keys[i][1];
    return name;
}

static bool refuse(const char *kind, const json_t *saved, const json_t *present, bool acceptable, const char *path,
                   error *e) {
    char *name = memory_copy_string(kind), *advice = memory_copy_string("use the same, or another [output] folder");
    if (acceptable) {
        free(advice);
        advice = memory_format("use the same, or go on all the same with [output] accept = %s", kind);
    }
    find_difference(&saved, &present, &name);
    char *was = value_text(saved), *is = value_text(present);
    error_set(e, EXIT_MODEL, "%s: cannot go on from here: %s was %.300s, now it is %.300s; %s", path, key_of(name), was,
              is, advice);
    free(was);
    free(is);
    free(name);
    free(advice);
    return false;
}

bool training_record_accept(const json_t *saved, const json_t *present, const config *c, const char *path, error *e) {
    const json_t *before = json_object_get(saved, "mathematics"), *now = json_object_get(present, "mathematics");
    const char *kind;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)now, kind, value) {
        const json_t *other = json_object_get(before, kind);
        const bool acceptable = config_acceptable(kind);
        if ((other == NULL || !json_equal(other, value)) && !(acceptable && config_accepts(c, kind)))
            return refuse(kind, other, value, acceptable, path, e);
    }
    return true;
}

bool training_record_position(const json_t *saved, int64_t step, const config *c, const char *path, position *at,
                              error *e) {
    const json_t *from = json_object_get(saved, "position");
    const json_t *windows = json_object_get(from, "windows"), *tokens = json_object_get(from, "tokens");
    const json_t *sequence = json_object_get(json_object_get(saved, "mathematics"), "sequence");
    const int64_t length = json_integer_value(sequence);
    *at = (position){.step = step,
                     .windows = json_integer_value(windows),
                     .tokens = json_integer_value(tokens),
                     .skipped = (int)json_integer_value(json_object_get(from, "skipped")),
                     .loss_scale = json_number_value(json_object_get(from, "loss_scale")),
                     .good_steps = json_number_value(json_object_get(from, "good_steps"))};
    if (!(at->loss_scale == 0 || (at->loss_scale >= 1 && at->good_steps >= 0)))
        return error_set(e, EXIT_MODEL, "%s: its manifest has a loss scale of %g after %g good steps", path,
                         at->loss_scale, at->good_steps);
    if (!json_is_integer(windows) || !json_is_integer(tokens) || at->windows < 0 || at->tokens < 0 || length < 1)
        return error_set(e, EXIT_MODEL,
                         "%s: its manifest does not say how far in the data it is; this program did not write it so",
                         path);
    if (length != c->train.sequence) /* accepted: the same place in the data, in windows of the new length */
        at->windows = must_multiply(at->windows, length) / c->train.sequence;
    return true;
}

json_t *training_record_changes(const json_t *saved, const json_t *present) {
    static const char *const sections[] = {"train", "optimizer", "precision"};
    json_t *changes = json_object();
    for (size_t s = 0; s < sizeof sections / sizeof *sections; s++) {
        const json_t *before = json_object_get(json_object_get(saved, "config"), sections[s]);
        json_t *now = json_object_get(json_object_get(present, "config"), sections[s]), *value;
        const char *key;
        json_object_foreach(now, key, value) {
            json_t *other = json_object_get(before, key);
            if (other == NULL || json_equal(other, value))
                continue;
            char *name = memory_format("%s.%s", sections[s], key);
            json_object_set_new(changes, name, json_pack("[O, O]", other, value));
            free(name);
        }
    }
    return changes;
}

/* ---- the model's shape ---- */

static bool read_rope(const json_t *from, rope_scaling *rope) {
    json_int_t context;
    *rope = (rope_scaling){.llama3 = !json_is_null(from)};
    if (!rope->llama3)
        return true;
    const int missing = json_unpack((json_t *)(uintptr_t)from, "{s:F, s:F, s:F, s:I}", "factor", &rope->factor,
                                    "low_frequency_factor", &rope->low_frequency_factor, "high_frequency_factor",
                                    &rope->high_frequency_factor, "original_context", &context);
    rope->original_context = context;
    return missing == 0;
}

static bool read_shape(json_t *from, model_shape *s) {
    const char *family;
    int tied;
    json_int_t sizes[8];
    json_t *rope;
    if (json_unpack(from, "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:F, s:F, s:o}", "family", &family,
                    "layers", &sizes[0], "width", &sizes[1], "heads", &sizes[2], "kv_heads", &sizes[3], "head_width",
                    &sizes[4], "feed_forward", &sizes[5], "vocabulary", &sizes[6], "context", &sizes[7], "tied", &tied,
                    "norm_epsilon", &s->norm_epsilon, "rope_theta", &s->rope_theta, "rope_scaling", &rope) != 0)
        return false;
    int64_t *const fields[] = {&s->layers,     &s->width,        &s->heads,      &s->kv_heads,
                               &s->head_width, &s->feed_forward, &s->vocabulary, &s->context};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (sizes[i] < 1 || sizes[i] > INT32_MAX)
            return false;
        *fields[i] = sizes[i];
    }
    s->tied = tied;
    for (int f = 0; f < FAMILY_COUNT; f++)
        if (strcmp(family, model_family_name((model_family)f)) == 0) {
            s->family = (model_family)f;
            return read_rope(rope, &s->rope);
        }
    return false;
}

bool training_record_shape(const json_t *saved, const char *path, model_shape *shape, error *e) {
    *shape = (model_shape){0};
    json_t *from = json_object_get(json_object_get(saved, "mathematics"), "model");
    const json_t *settings = json_object_get(json_object_get(saved, "config"), "model");
    shape->initialisation = json_number_value(json_object_get(settings, "initialisation"));
    return read_shape(from, shape) ||
           error_set(
               e, EXIT_MODEL,
               "%s: its manifest does not describe a model that this program knows; use the version that wrote it",
               path);
}
