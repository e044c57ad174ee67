#include "launch/config_keys.h"

#include "launch/presets.h"

#include <math.h>

#define FIELD(section_, name_) .section = #section_, .name = #name_, .offset = offsetof(config, section_.name_)
#define SWITCH .type = CONFIG_WORD, .words = "no|yes"
#define FROM(low_) .range = {.low = low_, .high = INFINITY}
#define ABOVE(low_) .range = {.low = low_, .high = INFINITY, .open_low = true}
#define BETWEEN(low_, high_) .range = {.low = low_, .high = high_}
#define BELOW_ONE .range = {.low = 0, .high = 1, .open_high = true}

/* The limits of shape and batch keys keep every product of them far inside 64 bits. */
const config_key config_keys[] = {
    {FIELD(model, family), .type = CONFIG_WORD, .words = "gpt2|llama", .derived = "of preset or from",
     .help = "kind of transformer"},
    {FIELD(model, preset), .type = CONFIG_WORD, .words = PRESET_NAMES,
     .help = "a published model: fills the shape keys, explicit keys win"},
    {FIELD(model, from), .type = CONFIG_TEXT, .words = "a folder with config.json and *.safetensors",
     .help = "Hugging Face model to start from; its shape wins, a shape key that disagrees is an error"},
    {FIELD(model, layers), .type = CONFIG_INTEGER, BETWEEN(1, 4096), .help = "transformer blocks"},
    {FIELD(model, width), .type = CONFIG_INTEGER, BETWEEN(1, 1 << 20), .help = "values of a token between blocks"},
    {FIELD(model, heads), .type = CONFIG_INTEGER, BETWEEN(1, 4096), .help = "attention heads"},
    {FIELD(model, kv_heads), .type = CONFIG_INTEGER, BETWEEN(1, 4096), .derived = "heads",
     .help = "heads of keys and values; each serves heads / kv_heads query heads"},
    {FIELD(model, head_width), .type = CONFIG_INTEGER, BETWEEN(1, 1024), .derived = "width / heads",
     .help = "values of a head"},
    {FIELD(model, feed_forward), .type = CONFIG_INTEGER, BETWEEN(1, 1 << 22),
     .derived = "gpt2: 4 * width; llama: 8/3 * width, up to a multiple of 64",
     .help = "values inside the feed-forward"},
    {FIELD(model, vocabulary), .type = CONFIG_INTEGER, BETWEEN(1, INT32_MAX), .derived = "of the tokenizer",
     .help = "different tokens"},
    {FIELD(model, context), .type = CONFIG_INTEGER, BETWEEN(1, 1 << 24), .help = "longest sequence"},
    {FIELD(model, tied), SWITCH, .derived = "gpt2: yes; llama: no", .help = "the head uses the embedding table"},
    {FIELD(model, norm_epsilon), .type = CONFIG_NUMBER, .initial = "1e-5", ABOVE(0),
     .help = "added to the variance in norms"},
    {FIELD(model, rope_theta), .type = CONFIG_NUMBER, .initial = "10000", ABOVE(0),
     .help = "base of the rotary embedding's wavelengths (llama)"},
    {FIELD(model, initialisation), .type = CONFIG_NUMBER, .initial = "0.02", FROM(0),
     .help = "standard deviation of initial weights; residual projections divided by sqrt(2 * layers)"},

    {FIELD(data, train), .type = CONFIG_LIST, .required = true,
     .help = "text or token files, in this order one stream"},
    {FIELD(data, validation), .type = CONFIG_LIST, .help = "held-out files, as train"},
    {FIELD(data, validation_fraction), .type = CONFIG_NUMBER, .initial = "0", BELOW_ONE,
     .help = "part of the training stream's end to hold out instead"},
    {FIELD(data, format), .type = CONFIG_WORD, .words = "auto|text|tokens16|tokens32", .initial = "auto",
     .help = "auto: token files by their header, else text; tokens16, tokens32: without a header"},
    {FIELD(data, tokenizer), .type = CONFIG_TEXT, .words = "bytes | a folder with tokenizer.json", .initial = "bytes",
     .built = "bytes", .help = "for text; bytes: a byte is a token"},
    {FIELD(data, order), .type = CONFIG_WORD, .words = "shuffled|sequential", .initial = "shuffled",
     .help = "of the windows that the stream is cut into"},
    {FIELD(data, cache), .type = CONFIG_TEXT, .words = "a folder", .built = "", .help = "where tokenised text is kept"},

    {FIELD(train, steps), .type = CONFIG_INTEGER, BETWEEN(1, INT32_MAX), .required = true, .help = "updates to make"},
    {FIELD(train, global_batch), .type = CONFIG_INTEGER, BETWEEN(1, INT32_MAX), .required = true,
     .help = "sequences per step, all ranks together; a multiple of micro_batch * ranks"},
    {FIELD(train, micro_batch), .type = CONFIG_INTEGER, BETWEEN(1, INT32_MAX), .initial = "1",
     .help = "sequences per rank and pass; the passes of a step are accumulated"},
    {FIELD(train, sequence), .type = CONFIG_INTEGER, BETWEEN(1, 1 << 24), .derived = "context",
     .help = "tokens per sequence"},
    {FIELD(train, seed), .type = CONFIG_INTEGER, FROM(0), .initial = "1",
     .help = "of initial weights and the order of data"},
    {FIELD(train, validate_every), .type = CONFIG_INTEGER, BETWEEN(0, INT32_MAX), .initial = "0",
     .help = "steps between validation losses; 0: off"},
    {FIELD(train, validation_batches), .type = CONFIG_INTEGER, BETWEEN(1, INT32_MAX), .initial = "8",
     .help = "validation uses the first validation_batches * global_batch windows"},
    {FIELD(train, nonfinite), .type = CONFIG_WORD, .words = "stop|skip", .initial = "stop",
     .help = "a loss or gradient norm that is not finite ends the run, or skips the update (10 in a row end it)"},

    {FIELD(optimizer, kind), .type = CONFIG_WORD, .words = "adamw", .initial = "adamw", .help = "update rule"},
    {FIELD(optimizer, learning_rate), .type = CONFIG_NUMBER, .initial = "3e-4", FROM(0), .help = "peak rate"},
    {FIELD(optimizer, minimum_learning_rate), .type = CONFIG_NUMBER, .initial = "0", FROM(0),
     .help = "where linear and cosine end"},
    {FIELD(optimizer, schedule), .type = CONFIG_WORD, .words = "constant|linear|cosine", .initial = "constant",
     .help = "of the rate after warmup"},
    {FIELD(optimizer, warmup), .type = CONFIG_INTEGER, BETWEEN(0, INT32_MAX), .initial = "0",
     .help = "steps over which the rate grows to its peak; may exceed steps"},
    {FIELD(optimizer, betas), .type = CONFIG_PAIR, .initial = "0.9 0.95", BELOW_ONE,
     .help = "decay of the two moments per step"},
    {FIELD(optimizer, epsilon), .type = CONFIG_NUMBER, .initial = "1e-8", ABOVE(0),
     .help = "added to the square root of the second moment"},
    {FIELD(optimizer, weight_decay), .type = CONFIG_NUMBER, .initial = "0.1", FROM(0),
     .help = "on tensors of two or more dimensions"},
    {FIELD(optimizer, clip), .type = CONFIG_NUMBER, .initial = "1.0", FROM(0),
     .help = "largest norm of the gradient; 0: off"},

    {FIELD(shard, strategy), .type = CONFIG_WORD, .words = "full|gradients|optimizer|none", .initial = "full",
     .help = "what is sharded over the ranks: ZeRO-3, 2, 1, nothing (DDP)"},
    {FIELD(shard, group), .type = CONFIG_INTEGER, .words = "node", BETWEEN(1, INT32_MAX),
     .derived = "all ranks; none: 1",
     .help = "ranks in a shard group, fewer than all is hybrid sharding; node: those of a node"},
    {FIELD(shard, prefetch), .type = CONFIG_INTEGER, BETWEEN(0, 4096), .initial = "1", .help = "units gathered ahead"},
    {FIELD(shard, keep_gathered), SWITCH, .derived = "from strategy", .help = "keep parameters gathered after forward"},
    {FIELD(shard, reduce_every), .type = CONFIG_WORD, .words = "each|last", .derived = "from strategy",
     .help = "micro-batch after which gradients are reduced"},
    {FIELD(shard, unit), .type = CONFIG_INTEGER, BETWEEN(1, 4096), .initial = "1",
     .help = "blocks gathered and reduced together"},
    {FIELD(shard, recompute), .type = CONFIG_WORD, .words = "none|block|attention|memory", .initial = "none",
     .help = "activations that backward computes again instead of keeping them"},
    {FIELD(shard, memory), .type = CONFIG_INTEGER, .words = "auto", .initial = "auto", FROM(1),
     .help = "bytes per rank that recompute = memory may use"},
    {FIELD(shard, reduce), .type = CONFIG_WORD, .words = "fast|reproducible", .initial = "fast",
     .help = "reproducible: the same bits at 1, 2, 4, 8 ranks"},
    {FIELD(shard, transport), .type = CONFIG_WORD, .words = "auto|window|messages", .initial = "auto",
     .help = "auto: shared memory inside a node, messages between nodes"},
    {FIELD(shard, ring), .type = CONFIG_WORD, .words = "nccl|hwloc|auto", .initial = "nccl",
     .help = "who finds the rings through a node's GPUs: NCCL, or this program from the wiring (fsdp_topology); auto: "
             "whose carry more, measured for a second; on CPUs ranks read each other's memory, in no ring"},
    {FIELD(shard, timeout), .type = CONFIG_NUMBER, .initial = "600", ABOVE(0),
     .help = "seconds a collective may take, and NCCL to connect its ranks at the start"},

    {FIELD(precision, compute), .type = CONFIG_WORD, .words = "fp32|tf32|bf16|fp16|fp8", .initial = "fp32",
     .built = "fp32|tf32|bf16|fp16",
     .help = "of matmuls and activations; master weights and optimizer states stay fp32"},
    {FIELD(precision, communicate), .type = CONFIG_WORD, .words = "fp32|bf16", .initial = "fp32",
     .help = "gradients on the wire"},
    {FIELD(precision, loss_scale), .type = CONFIG_NUMBER, .words = "dynamic", .initial = "dynamic", ABOVE(0),
     .help = "of fp16: what the loss is multiplied by before backward"},

    {FIELD(device, kind), .type = CONFIG_WORD, .words = "auto|cpu|cuda", .initial = "auto", .help = "what computes"},
    {FIELD(device, threads), .type = CONFIG_INTEGER, BETWEEN(1, 4096),
     .derived = "OMP_NUM_THREADS, else the rank's share of the allowed cores", .help = "threads per rank"},
    {FIELD(device, share), SWITCH, .initial = "no", .help = "several ranks may use one GPU"},
    {FIELD(device, bind), SWITCH, .initial = "yes",
     .help = "divide the allowed cores among the ranks of a node, near to their GPUs; left to mpirun's --bind-to, if "
             "given"},
    {FIELD(device, topology), .type = CONFIG_TEXT, .words = "a file of hwloc's XML or NCCL's topology XML",
     .derived = "this machine", .help = "how a node is wired, for shard.ring = hwloc and auto"},
    {FIELD(device, graph), SWITCH, .initial = "yes", .help = "a GPU repeats a step as one CUDA graph"},
    {FIELD(device, fuse), SWITCH, .initial = "yes",
     .help =
         "on a GPU matmuls take the gelu of their product, and sum bias gradients, where cuBLASLt does both at once"},

    {FIELD(output, folder), .type = CONFIG_TEXT, .words = "a folder", .derived = "out/<config file's name>",
     .help = "where metrics and the model are written"},
    {FIELD(output, log_every), .type = CONFIG_INTEGER, BETWEEN(1, INT32_MAX), .initial = "1",
     .help = "steps between step lines"},
    {FIELD(output, checkpoint_every), .type = CONFIG_INTEGER, BETWEEN(0, INT32_MAX), .initial = "0",
     .help = "steps between checkpoints, one more at the end; 0: only when a signal asks for one or ends the run"},
    {FIELD(output, keep), .type = CONFIG_INTEGER, BETWEEN(1, INT32_MAX), .initial = "2", .help = "checkpoints to keep"},
    {FIELD(output, checkpoint_background), SWITCH, .initial = "yes",
     .help = "copy the state to host memory and write it while training goes on"},
    {FIELD(output, checkpoint_failure), .type = CONFIG_WORD, .words = "continue|stop", .initial = "continue",
     .help = "what to do when a checkpoint cannot be written"},
    {FIELD(output, resume), .type = CONFIG_TEXT, .words = "auto | no | a checkpoint", .initial = "auto",
     .help = "checkpoint to go on from; auto: the latest in folder, if there is one"},
    {FIELD(output, accept), .type = CONFIG_LIST, .words = "any of data, batch, sequence",
     .help = "what may differ from the run that is resumed"},
    {FIELD(output, model_dtype), .type = CONFIG_WORD, .words = "fp32|bf16", .initial = "fp32",
     .help = "of the saved model"},
    {FIELD(output, trace), SWITCH, .initial = "no", .help = "write a timeline of chosen steps, folder/trace.json"},
    {FIELD(output, trace_steps), .type = CONFIG_PAIR, .initial = "2 3", BETWEEN(1, INT32_MAX),
     .help = "first and last step of the trace, from 1; at most 100 steps"},
};

const int config_key_count = sizeof config_keys / sizeof *config_keys;

const config_key *config_key_of(const config *c, const void *field) {
    for (int i = 0; i < config_key_count; i++)
        if (config_field(c, &config_keys[i]) == field)
            return &config_keys[i];
    check_failed(__FILE__, __LINE__, "the field has a key", "offset %td", (const char *)field - (const char *)c);
}

config_source *config_source_of(const config *c, const config_key *key) {
    return &c->sources[key - config_keys];
}
