/* Small models of both families, and folders of them as Hugging Face lays them out. */
#ifndef FSDP_TESTS_SUPPORT_SMALL_MODELS_H
#define FSDP_TESTS_SUPPORT_SMALL_MODELS_H

#include "models/huggingface.h"

extern const model_shape small_gpt2, small_llama;

/* A failure of any of these fails the test. */

/* The folder of a model whose weights come from a formula (support/model_folder.h). */
void small_model_write(const char *folder, const model_shape *shape, dtype type);

/* expected_warning NULL: none. */
huggingface_reader *small_model_open(const char *folder, const model *m, const char *expected_warning);

/* Every parameter whole, and every slice of it, against the formula. */
void small_model_check_weights(huggingface_reader *reader, const model *m, dtype type);
void small_model_check(const char *folder, const model_shape *shape, dtype type);

#endif
