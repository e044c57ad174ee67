/* fsdp_sample: continues a prompt with a model from a Hugging Face folder. */
#include "engine/checked.h"
#include "launch/generator.h"
#include "launch/machine.h"
#include "launch/nearest.h"
#include "launch/sampling.h"
#include "shard/file.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct request {
    const char *model, *prompt;
    int64_t tokens;
    sampling sampling;
    bool help, version;
} request;

static void print_help(void) {
    puts("Continues a prompt with a model from a Hugging Face folder (GPT-2 or Llama).\n"
         "\n"
         "  fsdp_sample --model DIR --prompt \"text\" [--tokens N --temperature X --top-k N --seed N]\n"
         "\n"
         "  --model DIR         config.json and model.safetensors (or several files with an index)\n"
         "  --prompt TEXT       text for a byte model (vocabulary 256, no tokenizer); for others token ids: \"12 34\"\n"
         "  --tokens N          tokens to add, default 256\n"
         "  --temperature X     default 1; below 1 likelier tokens gain, 0 always takes the likeliest\n"
         "  --top-k N           draw from the N likeliest only; default 0: all\n"
         "  --seed N            default 1; the same seed gives the same text\n"
         "\n"
         "Exit codes: 0 finished, 1 internal fault, 2 usage, 4 model files, 5 device.");
}

/* ---- command line ---- */

static bool whole_number(const char *option, const char *text, int64_t *value, error *e) {
    char *end = NULL;
    *value = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || *value < 0 || *value > INT32_MAX)
        return error_set(e, EXIT_USAGE, "argument %s %s: takes a whole number from 0 to %d", option, text, INT32_MAX);
    return true;
}

static bool temperature(const char *text, double *value, error *e) {
    char *end = NULL;
    *value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(*value) || *value < 0)
        return error_set(e, EXIT_USAGE, "argument --temperature %s: takes a number, 0 or more", text);
    return true;
}

static bool set_option(request *r, const char *option, const char *text, error *e) {
    int64_t seed = 0;
    if (strcmp(option, "--model") == 0)
        r->model = text;
    else if (strcmp(option, "--prompt") == 0)
        r->prompt = text;
    else if (strcmp(option, "--tokens") == 0)
        return whole_number(option, text, &r->tokens, e);
    else if (strcmp(option, "--temperature") == 0)
        return temperature(text, &r->sampling.temperature, e);
    else if (strcmp(option, "--top-k") == 0)
        return whole_number(option, text, &r->sampling.top_k, e);
    else if (whole_number(option, text, &seed, e))
        r->sampling.seed = (uint64_t)seed;
    return e->code == 0;
}

static bool parse(int count, char **arguments, request *r, error *e) {
    static const char *const options[] = {"--model", "--prompt", "--tokens", "--temperature", "--top-k", "--seed"};
    enum { OPTIONS = sizeof options / sizeof *options };
    *r = (request){.tokens = 256, .sampling = {.temperature = 1, .seed = 1}};
    for (int i = 1; i < count; i++) {
        const char *given = arguments[i], *nearest = NULL;
        r->help = r->help || strcmp(given, "--help") == 0;
        r->version = r->version || strcmp(given, "--version") == 0;
        if (r->help || r->version)
            return true;
        int known = 0;
        while (known < OPTIONS && strcmp(given, options[known]) != 0)
            nearest_consider(given, options[known++], &nearest);
        if (known == OPTIONS)
            return error_set(e, EXIT_USAGE, "argument %s: unknown option%s%s; see fsdp_sample --help", given,
                             nearest != NULL ? "; did you mean " : "", nearest != NULL ? nearest : "");
        if (++i == count)
            return error_set(e, EXIT_USAGE, "argument %s: a value is missing; see fsdp_sample --help", given);
        if (!set_option(r, given, arguments[i], e))
            return false;
    }
    if (r->model == NULL || r->prompt == NULL)
        return error_set(e, EXIT_USAGE, "%s is missing; see fsdp_sample --help",
                         r->model == NULL ? "--model DIR" : "--prompt TEXT");
    return true;
}

/* ---- tokens ---- */

typedef struct text {
    int32_t *tokens; /* room for the prompt and what is added */
    int64_t count;
    bool bytes; /* a token is a byte; else tokens are shown as numbers */
} text;

/* A model of 256 tokens that brings no tokenizer was trained on bytes. */
static bool is_byte_model(const char *folder, const model_shape *shape) {
    char *tokenizer = memory_format("%s/tokenizer.json", folder), *vocabulary = memory_format("%s/vocab.json", folder);
    const bool bytes = shape->vocabulary == 256 && !file_exists(tokenizer) && !file_exists(vocabulary);
    free(tokenizer);
    free(vocabulary);
    return bytes;
}

static bool parse_ids(const char *prompt, int64_t vocabulary, text *t, error *e) {
    while (*(prompt += strspn(prompt, " ,\t\n")) != '\0') {
        char *end = NULL;
        errno = 0;
        const long long id = strtoll(prompt, &end, 10);
        if (end == prompt || strchr(" ,\t\n", *end) == NULL || errno != 0 || id < 0 || id >= vocabulary)
            return error_set(e, EXIT_USAGE, "argument --prompt: \"%.*s\" is no token id; expected 0 to %lld",
                             (int)minimum((int64_t)strcspn(prompt, " ,\t\n"), 100), prompt, (long long)vocabulary - 1);
        t->tokens[t->count++] = (int32_t)id;
        prompt = end;
    }
    return true;
}

static bool parse_prompt(const request *r, const model_shape *shape, text *t, error *e) {
    const size_t length = strlen(r->prompt); /* no prompt has more tokens than characters */
    t->bytes = is_byte_model(r->model, shape);
    t->tokens = memory_allocate(length + (size_t)r->tokens, sizeof *t->tokens);
    if (t->bytes)
        for (size_t i = 0; i < length; i++)
            t->tokens[t->count++] = (unsigned char)r->prompt[i];
    else {
        fprintf(stderr,
                "fsdp_sample: %s: the tokenizer of this model can't be read yet: the prompt is taken as token ids, and "
                "token ids are printed\n",
                r->model);
        if (!parse_ids(r->prompt, shape->vocabulary, t, e))
            return false;
    }
    if (t->count == 0)
        return error_set(e, EXIT_USAGE, "argument --prompt: expected at least one token");
    return true;
}

static void print_token(const text *t, int64_t i) {
    if (t->bytes)
        putchar(t->tokens[i]);
    else
        printf("%s%d", i > 0 ? " " : "", t->tokens[i]);
    fflush(stdout);
}

/* ---- generation ---- */

static bool extend(const request *r, generator *g, text *t, float *logits, error *e) {
    if (!generator_logits(g, t->tokens, t->count, logits, e))
        return false;
    const int32_t token = sample_token(&r->sampling, t->count, logits, generator_shape(g)->vocabulary);
    if (token < 0)
        return error_set(e, EXIT_MODEL, "%s: the model's logits are not finite after %lld tokens", r->model,
                         (long long)t->count);
    t->tokens[t->count++] = token;
    print_token(t, t->count - 1);
    return true;
}

static bool generate(const request *r, generator *g, error *e) {
    text t = {0};
    float *logits = memory_allocate((size_t)generator_shape(g)->vocabulary, sizeof *logits);
    if (parse_prompt(r, generator_shape(g), &t, e)) {
        for (int64_t i = 0; i < t.count; i++)
            print_token(&t, i);
        for (int64_t i = 0; i < r->tokens && e->code == 0; i++)
            extend(r, g, &t, logits, e);
        putchar('\n');
    }
    free(t.tokens);
    free(logits);
    return e->code == 0;
}

static bool sample(const request *r, world *w, error *e) {
    const device_settings settings = {.threads = machine_threads(0, 1)};
    device *d = NULL;
    generator *g = NULL;
    char *warning = NULL;
    if (w->size != 1)
        return error_set(e, EXIT_LAUNCH, "samples on one rank; start it without mpirun");
    if (!device_cpu.open(&settings, &d, e))
        return false;
    bool fine = generator_open(r->model, w, d, &g, &warning, e);
    if (warning != NULL)
        fprintf(stderr, "fsdp_sample: warning: %s\n", warning);
    fine = fine && generate(r, g, e);
    free(warning);
    generator_close(g);
    d->functions->close(d);
    return fine;
}

int main(int argc, char **argv) {
    error e = {0};
    request r;
    world w;
    if (!parse(argc, argv, &r, &e)) {
        fprintf(stderr, "fsdp_sample: %s\n", e.message);
        return e.code;
    }
    if (r.help || r.version) {
        r.help ? print_help() : (void)puts("fsdp_sample " FSDP_VERSION);
        return EXIT_FINISHED;
    }
    if (world_open(&w, &argc, &argv, &e)) {
        sample(&r, &w, &e);
        if (!world_agree(&w, &e) && w.rank == 0)
            fprintf(stderr, "fsdp_sample: %s\n", e.message);
        world_close(&w);
    } else
        fprintf(stderr, "fsdp_sample: %s\n", e.message);
    return e.code;
}
