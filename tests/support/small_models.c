#include "support/small_models.h"

#include "engine/checked.h"
#include "engine/device/half.h"
#include "support/model_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

const model_shape small_gpt2 = {.family = FAMILY_GPT2,
                                .layers = 2,
                                .width = 6,
                                .heads = 3,
                                .kv_heads = 3,
                                .head_width = 2,
                                .feed_forward = 11,
                                .vocabulary = 13,
                                .context = 9,
                                .tied = true,
                                .norm_epsilon = 1e-5,
                                .initialisation = 0.02};
const model_shape small_llama = {.family = FAMILY_LLAMA,
                                 .layers = 2,
                                 .width = 7,
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .head_width = 6,
                                 .feed_forward = 5,
                                 .vocabulary = 13,
                                 .context = 32,
                                 .norm_epsilon = 1e-6,
                                 .rope_theta = 500000,
                                 .initialisation = 0.02,
                                 .rope = {true, 8, 1, 4, 16}};

void small_model_write(const char *folder, const model_shape *shape, dtype type) {
    error e = {0};
    if (!model_folder_write(folder, shape, type, &e))
        fail_msg("%s", e.message);
}

huggingface_reader *small_model_open(const char *folder, const model *m, const char *expected_warning) {
    huggingface_reader *reader = NULL;
    char *warning = NULL;
    error e = {0};
    if (!huggingface_open(folder, &m->list, &reader, &warning, &e))
        fail_msg("%s", e.message);
    if (expected_warning == NULL)
        assert_null(warning);
    else
        assert_string_equal(warning, expected_warning);
    free(warning);
    return reader;
}

void small_model_check_weights(huggingface_reader *reader, const model *m, dtype type) {
    error e = {0};
    for (int32_t i = 0; i < m->list.count; i++) {
        const parameter *p = &m->list.items[i];
        int64_t elements = parameter_elements(p);
        float *expected = memory_allocate((size_t)elements, sizeof *expected);
        float *read = memory_allocate((size_t)elements, sizeof *read);
        formula_values(p, 0, elements, expected);
        for (int64_t k = 0; type == DTYPE_BF16 && k < elements; k++)
            expected[k] = float_from_bf16(bf16_from_float(expected[k]));
        for (int64_t first = 0; first <= elements; first++)
            for (int64_t count = 0; count <= elements - first; count += elements > 20 ? 7 : 1) {
                assert_true(huggingface_read(reader, i, first, count, read, &e));
                assert_memory_equal(read, expected + first, (size_t)count * sizeof *read);
            }
        free(expected);
        free(read);
    }
}

void small_model_check(const char *folder, const model_shape *shape, dtype type) {
    model *m = model_create(shape, 1);
    huggingface_reader *reader = small_model_open(folder, m, NULL);
    small_model_check_weights(reader, m, type);
    huggingface_close(reader);
    model_destroy(m);
}
