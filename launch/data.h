/* What is trained on: windows of a token stream, in batches that depend on the step alone, never on rank or world size.
 *
 * T = sequence. A stream of n tokens has W = floor((n-1)/T) windows; window i is tokens iT ... iT+T inclusive, the
 * first T its inputs, the last T its targets. The i-th window taken since the run's first is i mod W (sequential) or
 * permutation(seed, floor(i/W))[i mod W] (shuffled; rng_permute, no memory). Step s, from 0, takes windows
 * s * global_batch ...; its micro-batch m holds m * micro_batch ... of them and belongs to rank m mod ranks, in pass
 * floor(m / ranks). A batch may span two epochs.
 *
 * Every rank opens the data, which is cheap; one rank checks the tokens, which reads them all, and shares the verdict
 * (world_agree). Failures have code EXIT_DATA. */
#ifndef FSDP_LAUNCH_DATA_H
#define FSDP_LAUNCH_DATA_H

#include "engine/error.h"
#include "launch/token_files.h"

typedef enum data_order { DATA_SHUFFLED, DATA_SEQUENTIAL } data_order;

typedef struct data_settings {
    const char *const *train; /* paths or globs; read during data_open only */
    int32_t train_count;
    const char *const *validation; /* the same; excludes validation_fraction */
    int32_t validation_count;
    double validation_fraction; /* 0 <= f < 1: the last floor(f * n) tokens of the training stream are held out */
    token_format format;
    data_order order;
    uint64_t seed;
    int64_t vocabulary;                /* 1 .. INT32_MAX */
    int64_t sequence;                  /* T */
    int64_t global_batch, micro_batch; /* sequences; micro_batch divides global_batch */
    int64_t validation_batches;        /* at most this many of global_batch sequences */
} data_settings;

typedef struct data data;

/* Known once the data is open. */
typedef struct data_facts {
    bool text;
    int32_t files, validation_files;               /* validation_files: 0 when held out or none */
    int64_t tokens, windows;                       /* trained on, in an epoch */
    int64_t validation_tokens, validation_windows; /* of the whole validation stream */
    int64_t validation_batches;                    /* that will be run: 0 without validation data */
} data_facts;

bool data_open(const data_settings *settings, data **opened, error *e);
void data_close(data *d);
data_facts data_describe(const data *d);

/* The files that are trained on. */
const token_stream *data_training_stream(const data *d);

/* Step `step` takes the windows from `windows` on, later steps those behind them: for a run that goes on with another
 * global batch than it began with. Without this call step 0 takes the first. */
void data_continue(data *d, int64_t step, int64_t windows);

/* Finds a token outside the vocabulary. May read every file to its end: for one rank to do, before training. */
bool data_check_tokens(const data *d, error *e);

/* The micro-batch of the step that a rank works on in a pass. */
static inline int64_t data_micro_batch(int64_t pass, int rank, int ranks) {
    return pass * ranks + rank;
}

/* Fills a micro-batch of training step `step`, N = micro_batch * sequence: tokens[N], targets[N] (the token after), and
 * order[N]: 0 .. N-1 sorted by (token, index), for embedding_backward. All N targets count. Every token is
 * inside the vocabulary: fails when a file was cut off or got other tokens since the check. */
bool data_training_batch(data *d, int64_t step, int64_t micro_batch, int32_t *tokens, int32_t *targets, int32_t *order,
                         error *e);

/* The same for validation batch 0 .. validation_batches-1: the windows in sequential order. Where windows have run out,
 * tokens are 0 and targets -1, which do not count. */
bool data_validation_batch(data *d, int64_t batch, int64_t micro_batch, int32_t *tokens, int32_t *targets,
                           int32_t *order, error *e);

/* Targets that count in a whole batch, all ranks together. */
int64_t data_training_counted(const data *d);
int64_t data_validation_counted(const data *d, int64_t batch);

#endif
