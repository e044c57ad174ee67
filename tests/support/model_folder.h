/* Small model folders with weights by formula (support/formula.h). */
#ifndef FSDP_TESTS_SUPPORT_MODEL_FOLDER_H
#define FSDP_TESTS_SUPPORT_MODEL_FOLDER_H

#include "engine/device/dtype.h"
#include "engine/error.h"
#include "models/model.h"

/* Elements first .. first + count of a parameter: each part counts its elements from 0, as its tensor in a file. */
void formula_values(const parameter *p, int64_t first, int64_t count, float *values);

/* Writes a Hugging Face folder of this shape. */
bool model_folder_write(const char *folder, const model_shape *shape, dtype type, error *e);

#endif
