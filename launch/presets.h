/* Published models by name. */
#ifndef FSDP_LAUNCH_PRESETS_H
#define FSDP_LAUNCH_PRESETS_H

#include "models/model.h"

/* The names, in the order of preset_shape. */
#define PRESET_NAMES                                                                                                   \
    "gpt2|gpt2-medium|gpt2-large|gpt2-xl|llama-3.2-1b|llama-3.2-3b|llama-3.1-8b|llama-3.1-70b|smollm2-135m|"           \
    "smollm2-360m|smollm2-1.7b"

enum { PRESET_COUNT = 11 };

/* The shape as its config.json on Hugging Face gives it. */
const model_shape *preset_shape(int index);

#endif
