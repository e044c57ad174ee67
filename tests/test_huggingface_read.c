/* Reading weights of Hugging Face folders by slices, and what is refused and how it says so. */
#include "engine/checked.h"
#include "shard/safetensors.h"
#include "support/folder.h"
#include "support/formula.h"
#include "support/model_folder.h"
#include "support/small_models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void expect_open_refused(const char *folder, const model *m, const char *message) {
    huggingface_reader *reader = NULL;
    char *warning = NULL;
    error e = {0};
    assert_false(huggingface_open(folder, &m->list, &reader, &warning, &e));
    assert_null(reader);
    assert_null(warning);
    assert_string_equal(e.message, message);
    assert_int_equal(e.code, EXIT_MODEL);
}

static void test_round_trip(void **state) {
    (void)state;
    model_shape untied = small_gpt2, tied = small_llama;
    untied.tied = false;
    tied.tied = true;
    const model_shape *shapes[] = {&small_gpt2, &untied, &small_llama, &tied};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int type = DTYPE_F32; type <= DTYPE_BF16; type += DTYPE_BF16 - DTYPE_F32) {
            small_model_write("model", shapes[i], (dtype)type);
            small_model_check("model", shapes[i], (dtype)type);
        }
}

/* A folder with the tensors of a model under changed names and in several files: what real checkpoints look like. */
typedef struct variant {
    const char *strip;     /* prefix taken from every name, or "" */
    const char *leave_out; /* a tensor not written, or "" */
    const char *transpose; /* a matrix whose sizes are swapped, or "" */
    const char *extra[3];  /* more tensors of one element; NULL: no more */
    int files;             /* 1: model.safetensors; more: with an index, tensors dealt in turn */
} variant;

static void write_tensors(const char *path, const model *m, const variant *v, int file) {
    safetensors_tensor tensors[64] = {{0}};
    const char *names[64]; /* that the formula knows */
    int32_t count = 0;
    for (int32_t i = 0, dealt = 0; i < m->list.count; i++)
        for (int part = 0; part < m->list.items[i].part_count; part++) {
            const parameter *p = &m->list.items[i];
            const char *name = p->parts[part].name;
            if (dealt++ % v->files != file || strcmp(name, v->leave_out) == 0)
                continue;
            bool swap = strcmp(name, v->transpose) == 0;
            names[count] = name;
            tensors[count++] = (safetensors_tensor){
                strncmp(name, v->strip, strlen(v->strip)) == 0 ? name + strlen(v->strip) : name,
                p->dimensions,
                {swap ? p->shape[1] : p->parts[part].rows, swap ? p->parts[part].rows : p->shape[1]}};
        }
    for (int k = 0; file == 0 && k < 3 && v->extra[k] != NULL; k++) {
        names[count] = v->extra[k];
        tensors[count++] = (safetensors_tensor){v->extra[k], 1, {1}};
    }
    error e = {0};
    safetensors_writer *writer = NULL;
    assert_true(safetensors_create(path, tensors, count, DTYPE_F32, &writer, &e));
    for (int32_t t = 0; t < count; t++) {
        int64_t elements = tensors[t].shape[0] * (tensors[t].dimensions > 1 ? tensors[t].shape[1] : 1);
        for (int64_t k = 0; k < elements; k++) {
            float value = formula_weight(names[t], tensors[t].dimensions, k);
            assert_true(safetensors_write(writer, t, k, 1, &value, &e));
        }
    }
    assert_true(safetensors_finish(writer, &e));
}

static void add_to_index(FILE *index, const char *path, const char *file, bool *first) {
    error e = {0};
    safetensors_file *opened = NULL;
    assert_true(safetensors_open(path, &opened, &e));
    for (int32_t i = 0; i < opened->count; i++) {
        fprintf(index, "%s\"%s\": \"%s\"", *first ? "" : ", ", opened->entries[i].name, file);
        *first = false;
    }
    safetensors_close(opened);
}

static void write_variant(const char *folder, const model_shape *shape, const variant *v) {
    model *m = model_create(shape, 1);
    assert_int_equal(mkdir(folder, 0777), 0);
    char *index_path = memory_format("%s/model.safetensors.index.json", folder);
    FILE *index = v->files > 1 ? fopen(index_path, "w") : NULL;
    bool first = true;
    if (index != NULL)
        fputs("{\"metadata\": {}, \"weight_map\": {", index);
    for (int file = 0; file < v->files; file++) {
        char *name = v->files == 1 ? memory_copy_string("model.safetensors")
                                   : memory_format("model-%05d-of-%05d.safetensors", file + 1, v->files);
        char *path = memory_format("%s/%s", folder, name);
        write_tensors(path, m, v, file);
        if (index != NULL)
            add_to_index(index, path, name, &first);
        free(name);
        free(path);
    }
    if (index != NULL) {
        fputs("}}", index);
        fclose(index);
    }
    free(index_path);
    model_destroy(m);
}

static void check_variant(const model_shape *shape, const variant *v, const char *warning) {
    write_variant("variant", shape, v);
    model *m = model_create(shape, 1);
    huggingface_reader *reader = small_model_open("variant", m, warning);
    small_model_check_weights(reader, m, DTYPE_F32);
    huggingface_close(reader);
    model_destroy(m);
    assert_int_equal(system("rm -r variant"), 0);
}

static void expect_variant_refused(const model_shape *shape, const variant *v, const char *message) {
    write_variant("variant", shape, v);
    model *m = model_create(shape, 1);
    expect_open_refused("variant", m, message);
    model_destroy(m);
    assert_int_equal(system("rm -r variant"), 0);
}

static void test_names_and_files(void **state) {
    (void)state;
    check_variant(&small_gpt2, &(variant){"transformer.", "", "", {0}, 1}, NULL);
    check_variant(&small_gpt2, &(variant){"transformer.", "", "", {0}, 3}, NULL);
    check_variant(&small_llama, &(variant){"", "", "", {0}, 5}, NULL);
    /* What transformers and older checkpoints add without adding anything. */
    check_variant(&small_gpt2,
                  &(variant){"", "", "", {"transformer.h.0.attn.bias", "h.1.attn.masked_bias", "lm_head.weight"}, 1},
                  NULL);
    check_variant(&small_llama, &(variant){"", "", "", {"model.layers.0.self_attn.rotary_emb.inv_freq"}, 1}, NULL);
    check_variant(&small_gpt2, &(variant){"", "", "", {"score.weight", "value.weight"}, 1},
                  "variant/model.safetensors: 2 tensors not of this model ignored, the first is score.weight");
    check_variant(&small_gpt2, &(variant){"", "", "", {"transformer.h.2.ln_1.bias"}, 2},
                  "variant/model.safetensors.index.json: 1 tensor not of this model ignored, the first is "
                  "transformer.h.2.ln_1.bias");
}

static void test_missing_and_misshapen(void **state) {
    (void)state;
    expect_variant_refused(&small_gpt2, &(variant){"", "transformer.ln_f.bias", "", {0}, 1},
                           "variant/model.safetensors: no tensor transformer.ln_f.bias");
    expect_variant_refused(&small_llama, &(variant){"", "model.layers.1.self_attn.k_proj.weight", "", {0}, 2},
                           "variant/model.safetensors.index.json: no tensor model.layers.1.self_attn.k_proj.weight");
    expect_variant_refused(&small_llama, &(variant){"", "lm_head.weight", "", {0}, 1},
                           "variant/model.safetensors: no tensor lm_head.weight");
    expect_variant_refused(&small_gpt2, &(variant){"", "", "transformer.h.1.mlp.c_fc.weight", {0}, 1},
                           "variant/model.safetensors: tensor transformer.h.1.mlp.c_fc.weight: shape [11, 6]; "
                           "expected [6, 11]");
    expect_variant_refused(&small_llama, &(variant){"", "model.norm.weight", "", {"model.norm.weight"}, 1},
                           "variant/model.safetensors: tensor model.norm.weight: shape [1]; expected [7]");
}

static void test_wrong_type(void **state) {
    (void)state;
    small_model_write("model", &small_gpt2, DTYPE_F32);
    size_t bytes = 0;
    char *contents = test_file_read("model/model.safetensors", &bytes);
    char *type = memmem(contents, bytes, "\"F32\"", 5); /* of the first tensor */
    assert_non_null(type);
    memcpy(type, "\"I32\"", 5);
    test_file_write("model/model.safetensors", contents, bytes);
    free(contents);
    model *m = model_create(&small_gpt2, 1);
    expect_open_refused("model", m,
                        "model/model.safetensors: tensor transformer.wte.weight: dtype I32; expected F32, "
                        "BF16, F16 or F64");
    model_destroy(m);
}

static void expect_index_refused(const model *m, const char *index, const char *message) {
    test_text_write("model/model.safetensors.index.json", index);
    expect_open_refused("model", m, message);
}

static void test_index_mistakes(void **state) {
    (void)state;
    model *m = model_create(&small_gpt2, 1);
    expect_open_refused("absent", m, "absent: found neither model.safetensors nor model.safetensors.index.json");
    small_model_write("model", &small_gpt2, DTYPE_F32);
    assert_int_equal(rename("model/model.safetensors", "model/a.safetensors"), 0);
    expect_index_refused(m, "{",
                         "model/model.safetensors.index.json:1: not valid JSON: string or '}' expected near "
                         "end of file");
    expect_index_refused(m, "{\"weight_map\": {\"a\": \"x\", \"a\": \"y\"}}",
                         "model/model.safetensors.index.json:1: not valid JSON: duplicate object key near '\"a\"'");
    expect_index_refused(m, "{}",
                         "model/model.safetensors.index.json: expected \"weight_map\" to be an object of "
                         "tensor names and file names");
    expect_index_refused(m, "{\"weight_map\": {\"transformer.wte.weight\": 1}}",
                         "model/model.safetensors.index.json: weight_map: tensor transformer.wte.weight: expected a "
                         "file name");
    expect_index_refused(m, "{\"weight_map\": {\"transformer.wte.weight\": \"../model/a.safetensors\"}}",
                         "model/model.safetensors.index.json: weight_map: \"../model/a.safetensors\": expected the "
                         "name of a file in the same folder");
    expect_index_refused(m, "{\"weight_map\": {\"transformer.wte.weight\": \"b.safetensors\"}}",
                         "model/b.safetensors: cannot open: No such file or directory");
    expect_index_refused(m, "{\"weight_map\": {\"lm_head.weight\": \"a.safetensors\"}}",
                         "model/a.safetensors: no tensor lm_head.weight, which model/model.safetensors.index.json "
                         "places there");
    model_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_IN_FOLDER(test_round_trip),
        TEST_IN_FOLDER(test_names_and_files),
        TEST_IN_FOLDER(test_missing_and_misshapen),
        TEST_IN_FOLDER(test_wrong_type),
        TEST_IN_FOLDER(test_index_mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
