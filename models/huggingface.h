/* Model folders as Hugging Face transformers reads and writes them: config.json, model.safetensors (or several files
 * with an index), tokenizer files. Families gpt2 and llama, both eras of config.json (transformers 4 and 5).
 *
 * Weights move by ranges of a parameter's elements, so that a rank reads only what it owns. A parameter's parts
 * (engine/parameter.h) are tensors of their own in the file; GPT-2 matrices keep the file's (in, out) order.
 * Errors carry EXIT_MODEL and name file, setting or tensor, what was found and what was expected. A warning is one or
 * more lines of text without a newline at the end, freed by the caller; NULL: none. */
#ifndef FSDP_MODELS_HUGGINGFACE_H
#define FSDP_MODELS_HUGGINGFACE_H

#include "engine/device/dtype.h"
#include "engine/error.h"
#include "models/model.h"

/* Reads FOLDER/config.json. A setting that changes the mathematics and is not built is refused by name; dropout is
 * ignored with a warning. */
bool huggingface_read_shape(const char *folder, model_shape *shape, char **warning, error *e);

typedef struct huggingface_reader huggingface_reader;

/* Opens the folder's weights for the parameters of `list`, which outlives the reader: every tensor is there, a float
 * tensor, of the right shape. GPT-2 names may lack "transformer."; GPT-2's attention masks, Llama's inverse
 * frequencies and, when `list` has no head of its own, lm_head.weight are ignored; other tensors that `list` does not
 * know are ignored with a warning. */
bool huggingface_open(const char *folder, const parameter_list *list, huggingface_reader **opened, char **warning,
                      error *e);

/* Elements first .. first + count of parameter `index`, as fp32. */
bool huggingface_read(huggingface_reader *reader, int32_t index, int64_t first, int64_t count, float *values, error *e);
void huggingface_close(huggingface_reader *reader);

typedef struct huggingface_writer huggingface_writer;

/* Begins a model folder in a temporary folder beside the final name ("model.incomplete" beside "model"); what an
 * interrupted writer left there is removed. type: DTYPE_F32, DTYPE_BF16 or DTYPE_F16. from: NULL, or the folder that
 * the model came from: its config.json (with the type corrected), tokenizer and generation files are carried over.
 * `list` outlives the writer. One process writes a folder. */
bool huggingface_writer_open(const char *folder, const model_shape *shape, const parameter_list *list, dtype type,
                             const char *from, huggingface_writer **opened, error *e);

/* Elements first .. first + count of parameter `index`, in any order; each exactly once. */
bool huggingface_write(huggingface_writer *writer, int32_t index, int64_t first, int64_t count, const float *values,
                       error *e);

/* Brings everything to the disk and puts the folder in place under its final name, where an older one stays complete
 * until the new one replaces it. Frees the writer, whatever the result; on failure the temporary folder is removed. */
bool huggingface_writer_finish(huggingface_writer *writer, error *e);

/* Removes the temporary folder and frees the writer. NULL is fine. */
void huggingface_writer_abandon(huggingface_writer *writer);

/* The text of a config.json for this model that transformers 4 and 5 both read; freed by the caller. */
char *huggingface_config(const model_shape *shape, dtype type);

/* Reads FROM/config.json and returns its text with the type of the weights replaced; NULL on failure. */
char *huggingface_config_retyped(const char *from, dtype type, error *e);

#endif
