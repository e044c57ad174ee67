/* Writing Hugging Face folders: the old one stays whole until the new one is, and keeps what this program does not
 * know. */
#include "engine/checked.h"
#include "support/folder.h"
#include "support/model_folder.h"
#include "support/small_models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define LLAMA                                                                                                          \
    "\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 24, "                                       \
    "\"num_attention_heads\": 4, \"intermediate_size\": 5, \"max_position_embeddings\": 32, "                          \
    "\"vocab_size\": 13"

static void expect_text(const char *path, const char *text) {
    size_t count = 0;
    char *found = test_file_read(path, &count);
    assert_string_equal(found, text);
    free(found);
}

static void expect_absent(const char *path) {
    assert_int_not_equal(access(path, F_OK), 0);
}

/* Opens a writer and writes some of it. */
static huggingface_writer *begin_writer(const char *folder, const model *m, const char *from) {
    huggingface_writer *writer = NULL;
    error e = {0};
    if (!huggingface_writer_open(folder, &m->shape, &m->list, DTYPE_BF16, from, &writer, &e))
        fail_msg("%s", e.message);
    float value = 1;
    assert_true(huggingface_write(writer, 0, 0, 1, &value, &e));
    return writer;
}

/* A writer that is given up or killed leaves the old folder as it was; the next one clears what is left. */
static void test_interrupted_writer(void **state) {
    (void)state;
    model *m = model_create(&small_llama, 1);
    small_model_write("model", &small_llama, DTYPE_F32);
    huggingface_writer_abandon(begin_writer("model", m, NULL));
    expect_absent("model.incomplete");
    small_model_check("model", &small_llama, DTYPE_F32);

    pid_t child = fork();
    if (child == 0) {
        begin_writer("model", m, NULL);
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(access("model.incomplete", F_OK), 0);
    small_model_check("model", &small_llama, DTYPE_F32);
    small_model_write("model", &small_llama, DTYPE_BF16);
    small_model_check("model", &small_llama, DTYPE_BF16);
    expect_absent("model.incomplete");
    expect_absent("model.replaced");
    model_destroy(m);
}

/* Killed between the two renames of a file system that cannot exchange: the older folder comes back. */
static void test_interrupted_replacement(void **state) {
    (void)state;
    model *m = model_create(&small_llama, 1);
    small_model_write("model.replaced", &small_llama, DTYPE_F32);
    huggingface_writer_abandon(begin_writer("model", m, NULL));
    small_model_check("model", &small_llama, DTYPE_F32);
    expect_absent("model.replaced");
    model_destroy(m);
}

static void test_link_survives(void **state) {
    (void)state;
    assert_int_equal(mkdir("disk", 0777), 0);
    small_model_write("disk/model", &small_llama, DTYPE_F32);
    assert_int_equal(symlink("disk/model", "model"), 0);
    small_model_write("model/", &small_llama, DTYPE_BF16);
    struct stat status;
    assert_int_equal(lstat("model", &status), 0);
    assert_true(S_ISLNK(status.st_mode));
    small_model_check("disk/model", &small_llama, DTYPE_BF16);
}

/* config.json keeps what this program does not know, and says the type that was written. */
static void test_carried_over(void **state) {
    (void)state;
    small_model_write("source", &small_llama, DTYPE_F32);
    test_text_write("source/tokenizer.json", "{\"version\": \"1.0\"}");
    test_text_write("source/generation_config.json", "{\"eos_token_id\": 2}");
    test_text_write("source/README.md", "about the source");
    test_text_write("source/config.json", "{" LLAMA ", \"rms_norm_eps\": 1e-05, \"eos_token_id\": 2, "
                                          "\"torch_dtype\": \"float32\"}");
    model *m = model_create(&small_llama, 1);
    huggingface_writer *writer = NULL;
    error e = {0};
    assert_true(huggingface_writer_open("model", &small_llama, &m->list, DTYPE_BF16, "source", &writer, &e));
    expect_absent("model");
    for (int32_t i = 0; i < m->list.count; i++)
        for (int64_t k = parameter_elements(&m->list.items[i]) - 1; k >= 0; k--) { /* backwards, one by one */
            float value;
            formula_values(&m->list.items[i], k, 1, &value);
            assert_true(huggingface_write(writer, i, k, 1, &value, &e));
        }
    assert_true(huggingface_writer_finish(writer, &e));
    small_model_check("model", &small_llama, DTYPE_BF16);
    expect_text("model/tokenizer.json", "{\"version\": \"1.0\"}");
    expect_text("model/generation_config.json", "{\"eos_token_id\": 2}");
    expect_absent("model/README.md");
    expect_text("model/config.json", "{\n  \"model_type\": \"llama\",\n  \"num_hidden_layers\": 2,\n"
                                     "  \"hidden_size\": 24,\n  \"num_attention_heads\": 4,\n"
                                     "  \"intermediate_size\": 5,\n  \"max_position_embeddings\": 32,\n"
                                     "  \"vocab_size\": 13,\n  \"rms_norm_eps\": 1e-5,\n  \"eos_token_id\": 2,\n"
                                     "  \"torch_dtype\": \"bfloat16\",\n  \"dtype\": \"bfloat16\"\n}\n");
    model_destroy(m);
}

static void expect_writer_refused(const model *m, const char *folder, const char *from, const char *message) {
    huggingface_writer *writer = NULL;
    error e = {0};
    assert_false(huggingface_writer_open(folder, &m->shape, &m->list, DTYPE_F32, from, &writer, &e));
    assert_null(writer);
    assert_string_equal(e.message, message);
    assert_int_equal(e.code, EXIT_MODEL);
}

static void test_writer_mistakes(void **state) {
    (void)state;
    model *m = model_create(&small_gpt2, 1);
    expect_writer_refused(m, "absent/model", NULL, "absent/model.incomplete: cannot create: No such file or directory");
    expect_writer_refused(m, "model", "absent", "absent/config.json: cannot open: No such file or directory");
    expect_absent("model.incomplete");
    test_text_write("file", "");
    expect_writer_refused(m, "file", NULL, "file: expected a folder; move the file away");
    assert_int_equal(mkdir("mine", 0777) + mkdir("mine/photos", 0777), 0);
    expect_writer_refused(m, "mine/", NULL,
                          "mine: holds a folder, photos, that replacing it would remove; move it away");
    model_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_IN_FOLDER(test_interrupted_writer), TEST_IN_FOLDER(test_interrupted_replacement),
        TEST_IN_FOLDER(test_link_survives),      TEST_IN_FOLDER(test_carried_over),
        TEST_IN_FOLDER(test_writer_mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
