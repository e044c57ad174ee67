#include "launch/data.h"

#include "engine/checked.h"
#include "engine/rng.h"
#include "launch/token_order.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Keeps the shuffling's random numbers apart from others of the same seed; the epoch is added. */
static const uint64_t shuffle_stream = UINT64_C(1) << 60;

/* Part of a stream, cut into windows. */
typedef struct window_range {
    const token_stream *stream; /* NULL: no such data */
    int64_t first, tokens;
    int64_t windows;
} window_range;

struct data {
    data_settings settings; /* the lists of paths are not kept */
    token_stream train_stream, validation_stream;
    window_range train, validation;
    int64_t validation_limit; /* windows that validation takes */
    int64_t shift;            /* step s takes windows shift + s * global_batch ... */
    int32_t *window;          /* scratch [sequence + 1] */
    int32_t *sorting;         /* scratch [micro_batch * sequence] */
};

/* ---- opening ---- */

static int64_t windows_of(int64_t tokens, int64_t sequence) {
    return tokens > 0 ? (tokens - 1) / sequence : 0;
}

/* Names what is too short to hold a window: a file, several files, or what holding out has left. */
static bool require_window(const window_range *range, int64_t sequence, const char *part, error *e) {
    if (range->windows > 0)
        return true;
    const token_stream *s = range->stream;
    char *source = s->count == 1 ? memory_copy_string(s->files[0].path) : memory_format("%d files", (int)s->count);
    error_set(e, EXIT_DATA, "%s: %s: %s%lld tokens; a window of [train] sequence = %lld needs %lld", s->key, source,
              part, (long long)range->tokens, (long long)sequence, (long long)sequence + 1);
    free(source);
    return false;
}

static window_range cut(const token_stream *s, int64_t first, int64_t tokens, int64_t sequence) {
    return (window_range){.stream = s, .first = first, .tokens = tokens, .windows = windows_of(tokens, sequence)};
}

/* The held-out tokens of the training stream: training windows end before them. */
static bool cut_streams(data *d, error *e) {
    const token_stream *s = &d->train_stream;
    int64_t sequence = d->settings.sequence;
    int64_t held_out = (int64_t)floor(d->settings.validation_fraction * (double)s->tokens);
    d->train = cut(s, 0, s->tokens - held_out, sequence);
    if (!require_window(&d->train, sequence, held_out > 0 ? "without what validation_fraction holds out, " : "", e))
        return false;
    if (d->validation_stream.count > 0) {
        d->validation = cut(&d->validation_stream, 0, d->validation_stream.tokens, sequence);
        return require_window(&d->validation, sequence, "", e);
    }
    if (d->settings.validation_fraction > 0) {
        d->validation = cut(s, s->tokens - held_out, held_out, sequence);
        return require_window(&d->validation, sequence, "validation_fraction holds out ", e);
    }
    return true;
}

static bool open_streams(data *d, const data_settings *s, error *e) {
    if (!token_stream_open("[data] train", s->train, s->train_count, s->format, &d->train_stream, e))
        return false;
    if (s->validation_count == 0)
        return true;
    if (s->validation_fraction > 0)
        return error_set(e, EXIT_USAGE, "[data] validation and validation_fraction are both set; use one");
    if (!token_stream_open("[data] validation", s->validation, s->validation_count, s->format, &d->validation_stream,
                           e))
        return false;
    if (d->train_stream.text != d->validation_stream.text)
        return error_set(e, EXIT_DATA, "[data] train is %s, but validation is %s; both must be the same",
                         d->train_stream.text ? "text" : "token files",
                         d->validation_stream.text ? "text" : "token files");
    return true;
}

bool data_open(const data_settings *settings, data **opened, error *e) {
    data *d = memory_allocate(1, sizeof *d);
    d->settings = *settings;
    d->settings.train = d->settings.validation = NULL;
    check(settings->sequence > 0 && settings->micro_batch > 0 && settings->global_batch % settings->micro_batch == 0 &&
              settings->vocabulary > 0 && settings->vocabulary <= INT32_MAX,
          "settings were not checked");
    if (!open_streams(d, settings, e) || !cut_streams(d, e)) {
        data_close(d);
        return false;
    }
    int64_t wanted = 0;
    if (!checked_multiply(settings->validation_batches, settings->global_batch, &wanted))
        wanted = INT64_MAX;
    d->validation_limit = minimum(wanted, d->validation.windows);
    int64_t tokens = must_multiply(settings->micro_batch, settings->sequence);
    check(tokens <= INT32_MAX, "%lld tokens of a micro-batch", (long long)tokens);
    d->window = memory_allocate((size_t)settings->sequence + 1, sizeof *d->window);
    d->sorting = memory_allocate((size_t)tokens, sizeof *d->sorting);
    *opened = d;
    return true;
}

void data_close(data *d) {
    if (d == NULL)
        return;
    token_stream_close(&d->train_stream);
    token_stream_close(&d->validation_stream);
    free(d->window);
    free(d->sorting);
    free(d);
}

data_facts data_describe(const data *d) {
    return (data_facts){
        .text = d->train_stream.text,
        .files = d->train_stream.count,
        .validation_files = d->validation_stream.count,
        .tokens = d->train.tokens,
        .windows = d->train.windows,
        .validation_tokens = d->validation.tokens,
        .validation_windows = d->validation.windows,
        .validation_batches = divide_up(d->validation_limit, d->settings.global_batch),
    };
}

const token_stream *data_training_stream(const data *d) {
    return &d->train_stream;
}

void data_continue(data *d, int64_t step, int64_t windows) {
    d->shift = windows - must_multiply(step, d->settings.global_batch);
}

bool data_check_tokens(const data *d, error *e) {
    return token_stream_check(&d->train_stream, d->settings.vocabulary, e) &&
           token_stream_check(&d->validation_stream, d->settings.vocabulary, e);
}

/* ---- batches ---- */

static int64_t training_window(const data *d, int64_t taken) {
    uint64_t windows = (uint64_t)d->train.windows, epoch = (uint64_t)taken / windows, i = (uint64_t)taken % windows;
    return (int64_t)(d->settings.order == DATA_SHUFFLED
                         ? rng_permute(d->settings.seed, shuffle_stream + epoch, windows, i)
                         : i);
}

/* The tokens were checked when the data was opened, but by one rank, and other programs may write to the files. */
static bool check_window(const data *d, const window_range *range, int64_t first, error *e) {
    for (int64_t i = 0; i <= d->settings.sequence; i++)
        if ((uint32_t)d->window[i] >= (uint32_t)d->settings.vocabulary)
            return error_set_own(e, EXIT_DATA,
                                 "%s: token %lld of the stream is %u, outside the vocabulary of %lld; the files were "
                                 "changed while in use, or differ from rank 0's",
                                 range->stream->key, (long long)(first + i), (uint32_t)d->window[i],
                                 (long long)d->settings.vocabulary);
    return true;
}

static bool read_window(data *d, const window_range *range, int64_t window, int32_t *tokens, int32_t *targets,
                        error *e) {
    const int64_t sequence = d->settings.sequence, first = range->first + window * sequence;
    if (!token_stream_read(range->stream, first, sequence + 1, d->window, e) || !check_window(d, range, first, e))
        return false;
    memcpy(tokens, d->window, (size_t)sequence * sizeof *tokens);
    memcpy(targets, d->window + 1, (size_t)sequence * sizeof *targets);
    return true;
}

static void sort_tokens(data *d, const int32_t *tokens, int32_t *order) {
    token_order(tokens, d->settings.micro_batch * d->settings.sequence, d->settings.vocabulary, order, d->sorting);
}

bool data_training_batch(data *d, int64_t step, int64_t micro_batch, int32_t *tokens, int32_t *targets, int32_t *order,
                         error *e) {
    int64_t sequence = d->settings.sequence;
    int64_t first = d->shift + step * d->settings.global_batch + micro_batch * d->settings.micro_batch;
    for (int64_t i = 0; i < d->settings.micro_batch; i++)
        if (!read_window(d, &d->train, training_window(d, first + i), tokens + i * sequence, targets + i * sequence, e))
            return false;
    sort_tokens(d, tokens, order);
    return true;
}

bool data_validation_batch(data *d, int64_t batch, int64_t micro_batch, int32_t *tokens, int32_t *targets,
                           int32_t *order, error *e) {
    int64_t sequence = d->settings.sequence;
    int64_t first = batch * d->settings.global_batch + micro_batch * d->settings.micro_batch;
    for (int64_t i = 0; i < d->settings.micro_batch; i++) {
        int32_t *window_tokens = tokens + i * sequence, *window_targets = targets + i * sequence;
        if (first + i < d->validation_limit) {
            if (!read_window(d, &d->validation, first + i, window_tokens, window_targets, e))
                return false;
            continue;
        }
        for (int64_t t = 0; t < sequence; t++) {
            window_tokens[t] = 0;
            window_targets[t] = -1;
        }
    }
    sort_tokens(d, tokens, order);
    return true;
}

int64_t data_training_counted(const data *d) {
    return d->settings.global_batch * d->settings.sequence;
}

int64_t data_validation_counted(const data *d, int64_t batch) {
    int64_t left = d->validation_limit - batch * d->settings.global_batch;
    return minimum(maximum(left, 0), d->settings.global_batch) * d->settings.sequence;
}
