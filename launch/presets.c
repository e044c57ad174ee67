#include "launch/presets.h"

#include "engine/error.h"

/* clang-format off */
#define GPT2(layers_, width_, heads_)                                                                                  \
    {.family = FAMILY_GPT2, .layers = layers_, .width = width_, .heads = heads_, .kv_heads = heads_,                   \
     .head_width = (width_) / (heads_), .feed_forward = 4 * (width_), .vocabulary = 50257, .context = 1024,            \
     .tied = true, .norm_epsilon = 1e-5, .rope_theta = 10000, .initialisation = 0.02}

#define LLAMA3(layers_, width_, heads_, head_width_, feed_forward_, tied_, factor_)                                    \
    {.family = FAMILY_LLAMA, .layers = layers_, .width = width_, .heads = heads_, .kv_heads = 8,                       \
     .head_width = head_width_, .feed_forward = feed_forward_, .vocabulary = 128256, .context = 131072,                \
     .tied = tied_, .norm_epsilon = 1e-5, .rope_theta = 500000, .initialisation = 0.02,                                \
     .rope = {.llama3 = true, .factor = factor_, .low_frequency_factor = 1, .high_frequency_factor = 4,                \
              .original_context = 8192}}

#define SMOLLM2(layers_, width_, heads_, kv_heads_, feed_forward_, theta_, initialisation_)                            \
    {.family = FAMILY_LLAMA, .layers = layers_, .width = width_, .heads = heads_, .kv_heads = kv_heads_,               \
     .head_width = 64, .feed_forward = feed_forward_, .vocabulary = 49152, .context = 8192,                            \
     .tied = true, .norm_epsilon = 1e-5, .rope_theta = theta_, .initialisation = initialisation_}

static const model_shape shapes[PRESET_COUNT] = {
    GPT2(12, 768, 12),
    GPT2(24, 1024, 16),
    GPT2(36, 1280, 20),
    GPT2(48, 1600, 25),
    LLAMA3(16, 2048, 32, 64, 8192, true, 32),
    LLAMA3(28, 3072, 24, 128, 8192, true, 32),
    LLAMA3(32, 4096, 32, 128, 14336, false, 8),
    LLAMA3(80, 8192, 64, 128, 28672, false, 8),
    SMOLLM2(30, 576, 9, 3, 1536, 100000, 0.041666666666666664),
    SMOLLM2(32, 960, 15, 5, 2560, 100000, 0.02),
    SMOLLM2(24, 2048, 32, 32, 8192, 130000, 0.02),
};
/* clang-format on */

const model_shape *preset_shape(int index) {
    check(index >= 0 && index < PRESET_COUNT, "no preset %d", index);
    return &shapes[index];
}
