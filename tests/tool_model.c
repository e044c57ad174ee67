/* Writes a Hugging Face folder with weights by formula (support/formula.h).
 *
 *   tool_model FOLDER family=gpt2|llama KEY=VALUE ...
 *
 * Keys: layers width heads kv_heads head_width feed_forward vocabulary context tied (yes|no) norm_epsilon rope_theta
 * rope_factor rope_low_frequency_factor rope_high_frequency_factor rope_original_context initialisation
 * type (fp32|bf16). Sizes and tied must be given; kv_heads: heads; head_width: width / heads; feed_forward: 4 * width.
 * A rope_factor means Llama 3's scaling. */
#include "support/model_folder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct arguments {
    int count;
    char **values;
} arguments;

/* The text after KEY=, or NULL. */
static const char *find(const arguments *a, const char *key) {
    size_t length = strlen(key);
    for (int i = 0; i < a->count; i++)
        if (strncmp(a->values[i], key, length) == 0 && a->values[i][length] == '=')
            return a->values[i] + length + 1;
    return NULL;
}

static _Noreturn void refuse(const char *key, const char *found) {
    fprintf(stderr, "tool_model: %s: found %s\n", key, found == NULL ? "nothing" : found);
    exit(2);
}

static double number(const arguments *a, const char *key, double otherwise) {
    const char *text = find(a, key);
    char *end = NULL;
    double value = text == NULL ? otherwise : strtod(text, &end);
    if (!(value > 0) || (text != NULL && (end == text || *end != '\0')))
        refuse(key, text);
    return value;
}

static int64_t size(const arguments *a, const char *key, int64_t otherwise) {
    return (int64_t)number(a, key, (double)otherwise);
}

/* One of two words. */
static bool is_first(const arguments *a, const char *key, const char *first, const char *second,
                     const char *otherwise) {
    const char *text = find(a, key) != NULL ? find(a, key) : otherwise;
    if (text == NULL || (strcmp(text, first) != 0 && strcmp(text, second) != 0))
        refuse(key, text);
    return strcmp(text, first) == 0;
}

static void check_keys(const arguments *a) {
    static const char *const keys[] = {"family",
                                       "layers",
                                       "width",
                                       "heads",
                                       "kv_heads",
                                       "head_width",
                                       "feed_forward",
                                       "vocabulary",
                                       "context",
                                       "tied",
                                       "norm_epsilon",
                                       "rope_theta",
                                       "rope_factor",
                                       "rope_low_frequency_factor",
                                       "rope_high_frequency_factor",
                                       "rope_original_context",
                                       "initialisation",
                                       "type"};
    for (int i = 0; i < a->count; i++) {
        size_t length = strcspn(a->values[i], "="), k = 0;
        while (k < sizeof keys / sizeof keys[0] &&
               (strlen(keys[k]) != length || strncmp(keys[k], a->values[i], length) != 0))
            k++;
        if (k == sizeof keys / sizeof keys[0])
            refuse("unknown key", a->values[i]);
    }
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: tool_model FOLDER family=gpt2|llama KEY=VALUE ...\n");
        return 2;
    }
    arguments a = {argc - 2, argv + 2};
    check_keys(&a);
    model_shape shape = {.family = is_first(&a, "family", "gpt2", "llama", NULL) ? FAMILY_GPT2 : FAMILY_LLAMA,
                         .layers = size(&a, "layers", 0),
                         .width = size(&a, "width", 0),
                         .heads = size(&a, "heads", 0),
                         .vocabulary = size(&a, "vocabulary", 0),
                         .context = size(&a, "context", 0),
                         .tied = is_first(&a, "tied", "yes", "no", NULL),
                         .norm_epsilon = number(&a, "norm_epsilon", 1e-5),
                         .rope_theta = number(&a, "rope_theta", 10000),
                         .rope = {.llama3 = find(&a, "rope_factor") != NULL},
                         .initialisation = number(&a, "initialisation", 0.02)};
    shape.kv_heads = size(&a, "kv_heads", shape.heads);
    shape.head_width = size(&a, "head_width", shape.width / shape.heads);
    shape.feed_forward = size(&a, "feed_forward", 4 * shape.width);
    if (shape.rope.llama3) {
        shape.rope.factor = number(&a, "rope_factor", NAN);
        shape.rope.low_frequency_factor = number(&a, "rope_low_frequency_factor", NAN);
        shape.rope.high_frequency_factor = number(&a, "rope_high_frequency_factor", NAN);
        shape.rope.original_context = size(&a, "rope_original_context", 0);
    }
    error e = {0};
    if (model_folder_write(argv[1], &shape, is_first(&a, "type", "fp32", "bf16", "fp32") ? DTYPE_F32 : DTYPE_BF16, &e))
        return 0;
    fprintf(stderr, "tool_model: %s\n", e.message);
    return e.code;
}
