/* fsdp_train: trains a transformer, sharded over ranks. The whole life of a run, from the command line to its end. */
#include "comm/heartbeat.h"
#include "engine/checked.h"
#include "launch/binding.h"
#include "launch/command_line.h"
#include "launch/device_choice.h"
#include "launch/machine.h"
#include "launch/output_folder.h"
#include "launch/rank_table.h"
#include "launch/resume_log.h"
#include "launch/save.h"
#include "launch/signals.h"
#include "launch/topology_rings.h"
#include "launch/train.h"
#include "launch/weights.h"
#include "models/huggingface.h"

#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What a run holds; released in one place. */
typedef struct session {
    command_line line;
    world world;
    config *config;
    model_shape shape;
    binding binding;
    int threads;
    rings rings;
    device *device;
    data *data;
    plan *plan;
    device_memory arena;
    output_lock *lock; /* rank 0 of a run that trains */
    resume resume;
    trainer trainer;
} session;

/* Room for the program, its libraries and their buffers beside the arena. */
static const int64_t PROGRAM_BYTES = INT64_C(60) << 20;

/* Room on a device with memory of its own, beside the arena: kernels that are loaded at their first use, and the
 * buffers of its collectives. */
static const int64_t DEVICE_BYTES = INT64_C(512) << 20;

static void warn(const session *s, char *warning) {
    if (warning != NULL && s->world.rank == 0)
        fprintf(stderr, "fsdp_train: warning: %s\n", warning);
    free(warning);
}

/* ---- what the user asked for ---- */

/* The vocabulary that the tokenizer gives; a token file has none. */
static int64_t tokenizer_vocabulary(const config *c) {
    return c->data.format == TOKEN_FORMAT_AUTO || c->data.format == TOKEN_FORMAT_TEXT ? 256 : 0;
}

static bool read_settings(session *s, int ranks, const int *node_of, error *e) {
    model_shape from;
    char *warning = NULL;
    if (!config_read(s->line.config, s->line.overrides, s->line.override_count, &s->config, e))
        return false;
    const char *folder = s->config->model.from;
    if (folder != NULL && !huggingface_read_shape(folder, &from, &warning, e))
        return false;
    warn(s, warning);
    return config_resolve_model(s->config, folder != NULL ? &from : NULL, tokenizer_vocabulary(s->config), &s->shape,
                                e) &&
           config_check(s->config, ranks, node_of, e);
}

static bool open_device(session *s, error *e) {
    char *warning = NULL;
    s->threads = machine_threads(s->config->device.threads, s->binding.sharers);
    const bool good = device_choose(s->config, &s->world, s->threads, s->rings.gpu, &s->device, &warning, e);
    warn(s, warning);
    if (good && s->device->functions->bus_address != NULL)
        binding_move_near(&s->binding, &s->world, s->device->functions->bus_address(s->device));
    return good;
}

/* What was asked for and makes no difference. */
static void warn_precision(const session *s) {
    const config_precision *p = &s->config->precision;
    if (p->compute == CONFIG_TF32 && s->device->functions == &device_cpu)
        warn(s, memory_format("[precision] compute = tf32: the CPU computes in fp32"));
    if (p->compute != CONFIG_FP16 && config_given(s->config, &p->loss_scale))
        warn(s, memory_format("[precision] loss_scale: only compute = fp16 scales the loss"));
}

/* ---- data ---- */

static bool open_data(session *s, error *e) {
    const config *c = s->config;
    const data_settings settings = {.train = (const char *const *)c->data.train.items,
                                    .train_count = (int32_t)c->data.train.count,
                                    .validation = (const char *const *)c->data.validation.items,
                                    .validation_count = (int32_t)c->data.validation.count,
                                    .validation_fraction = c->data.validation_fraction,
                                    .format = (token_format)c->data.format,
                                    .order = (data_order)c->data.order,
                                    .seed = (uint64_t)c->train.seed,
                                    .vocabulary = s->shape.vocabulary,
                                    .sequence = c->train.sequence,
                                    .global_batch = c->train.global_batch,
                                    .micro_batch = c->train.micro_batch,
                                    .validation_batches = c->train.validation_batches};
    if (!data_open(&settings, &s->data, e))
        return false;
    if (!data_describe(s->data).text && !config_given(c, &c->model.vocabulary) && c->model.from == NULL &&
        c->model.preset < 0)
        return config_refuse(c, &c->model.vocabulary, e, "missing; token files do not say how many tokens there are");
    return s->world.rank > 0 || data_check_tokens(s->data, e);
}

static void print_data(const session *s) {
    const data_facts f = data_describe(s->data);
    printf("data         %lld tokens of %s in %d file%s: %lld windows of %lld\n", (long long)f.tokens,
           f.text ? "text (bytes)" : "token files", f.files, f.files == 1 ? "" : "s", (long long)f.windows,
           (long long)s->config->train.sequence);
    if (f.validation_tokens > 0)
        printf("validation   %lld tokens, of which %lld batch%s of %lld sequences %s used\n",
               (long long)f.validation_tokens, (long long)f.validation_batches, f.validation_batches == 1 ? "" : "es",
               (long long)s->config->train.global_batch, f.validation_batches == 1 ? "is" : "are");
}

/* ---- plan and memory ---- */

/* More than there is anywhere, and exact as a double. */
static const int64_t UNLIMITED_BYTES = INT64_C(1) << 62;

/* What a rank may use of its device's memory, or of this machine's beside its program; unlimited where the system does
 * not say. */
static int64_t memory_budget(const device *d, int ranks_here) {
    const device_capacity own = d->functions->capacity(d);
    const int64_t available = machine_available_memory();
    if (own.total > 0)
        return minimum(UNLIMITED_BYTES, maximum(0, own.available - DEVICE_BYTES));
    return available < 0 ? UNLIMITED_BYTES : maximum(0, available / ranks_here - PROGRAM_BYTES);
}

/* What MFU is relative to. */
static void print_peak(const session *s) {
    const precision_settings *p = &s->plan->precision;
    const device_functions *f = s->device->functions;
    if (f->peak == NULL || s->world.rank != 0)
        return;
    const device_peak peak = f->peak(s->device, p->storage, p->tf32);
    if (isfinite(peak.flops))
        printf("MFU          of %.1f TFLOP/s a rank, %s FLOP\n", 1e-12 * peak.flops, peak.basis);
}

static bool check_device_memory(const session *s, const device_capacity *own, error *e) {
    const int64_t needed = s->plan->arena_bytes + DEVICE_BYTES;
    if (needed <= own->available)
        return true;
    return error_set_own(
        e, EXIT_USAGE,
        "the plan needs %.1f MB of the GPU's memory, which has %.1f MB to give of its %.1f MB; use more "
        "ranks, a smaller train.micro_batch or a smaller model",
        (double)needed / 1e6, (double)own->available / 1e6, (double)own->total / 1e6);
}

/* Ranks on this machine that write checkpoints. */
static int writers_here(const session *s) {
    int writers = 0;
    for (int rank = 0; rank < s->plan->layout->group_size; rank++)
        writers += s->world.node_of[rank] == s->world.node;
    return writers;
}

/* Asked of every rank before anything large is allocated. */
static bool check_memory(const session *s, error *e) {
    const device_capacity own = s->device->functions->capacity(s->device);
    if (own.total > 0 && !check_device_memory(s, &own, e))
        return false;
    const int64_t available = machine_available_memory();
    const int64_t arena = own.total > 0 ? 0 : s->plan->arena_bytes;
    const int64_t needed =
        must_multiply(arena + PROGRAM_BYTES, s->world.local_size) + must_multiply(s->plan->copy_bytes, writers_here(s));
    if (available < 0 || needed <= available)
        return true;
    return error_set_own(e, EXIT_USAGE,
                         "the plan needs %.1f MB on this machine (%d rank%s x %.1f MB), which has %.1f MB to give; use "
                         "more machines, a smaller train.micro_batch or a smaller model",
                         (double)needed / 1e6, s->world.local_size, s->world.local_size == 1 ? "" : "s",
                         (double)needed / s->world.local_size / 1e6, (double)available / 1e6);
}

static plan_wishes wishes_of(const session *s) {
    const bool has_validation = s->data != NULL && data_describe(s->data).validation_batches > 0;
    if (s->line.command == COMMAND_VALIDATE)
        return (plan_wishes){.validation = true};
    return (plan_wishes){.train = true, .validation = has_validation};
}

static bool check_validation(const session *s, error *e) {
    if (s->line.command != COMMAND_VALIDATE || data_describe(s->data).validation_batches > 0)
        return true;
    return error_set(e, EXIT_USAGE, "%s: --validate needs [data] validation or validation_fraction", s->config->path);
}

/* ---- runs ---- */

static bool create_run(session *s, const step *of, run **created, error *e) {
    run_settings settings = plan_run_settings(s->plan, s->config);
    settings.graph = s->rings.graph;
    const bool good = of == NULL || run_create(of->program, &s->world, s->device, &s->arena, &settings, created, e);
    return world_agree(&s->world, e) && good;
}

static bool fill_weights(session *s, error *e) {
    const step *of = s->plan->train != NULL ? s->plan->train : s->plan->validation;
    run *r = s->plan->train != NULL ? s->trainer.train : s->trainer.validation;
    char *warning = NULL;
    weights_prepare(s->plan, of, r, s->config->train.sequence);
    if (s->plan->train != NULL && !resume_find(s->config, &s->world, s->plan, s->data, r, &s->resume, e))
        return false;
    if (s->resume.manifest != NULL)
        return true;
    if (s->config->model.from == NULL)
        weights_initialise(s->plan, of, r, (uint64_t)s->config->train.seed);
    else
        weights_load(s->plan, of, r, s->config->model.from, &warning, e);
    warn(s, warning);
    run_settle(r, e);
    return world_agree(&s->world, e);
}

static json_t *start_fields(const session *s) {
    json_t *fields = json_object();
    json_object_set_new(fields, "config", config_json(s->config));
    json_object_set_new(fields, "ranks", json_integer(s->world.size));
    json_object_set_new(fields, "nodes", json_integer(s->world.nodes));
    json_object_set_new(fields, "device", json_string(s->device->functions->describe(s->device)));
    json_object_set_new(fields, "parameters", json_integer(s->plan->model->list.elements));
    json_object_set_new(fields, "planned_memory", json_integer(s->plan->arena_bytes));
    json_object_set_new(fields, "planned_copy", json_integer(s->plan->copy_bytes));
    return fields;
}

/* ---- the output folder ---- */

static bool open_metrics(session *s, error *e) {
    metrics **m = &s->trainer.metrics;
    return resume_supersede(&s->resume, s->config, e) && metrics_open(s->config->output.folder, m, e) &&
           metrics_start(*m, start_fields(s), e) &&
           (s->resume.manifest == NULL || metrics_resume(*m, resume_fields(&s->resume), e));
}

static bool take_folder(session *s, error *e) {
    if (s->world.rank == 0)
        output_lock_take(s->config->output.folder, &s->lock, e);
    return world_agree(&s->world, e);
}

static bool open_output(session *s, error *e) {
    s->trainer.start = s->resume.at;
    s->trainer.saved = s->resume.manifest != NULL ? s->resume.at.step : -1;
    if (s->world.rank == 0)
        open_metrics(s, e);
    save_open(&s->trainer, e);
    return world_agree(&s->world, e);
}

/* ---- the commands that start ranks ---- */

/* A model folder's faults are found before anything is allocated or written; loading gives the warnings. */
static bool check_model_folder(const session *s, error *e) {
    huggingface_reader *reader = NULL;
    char *warning = NULL;
    const char *folder = s->config->model.from;
    const bool good = folder == NULL || huggingface_open(folder, &s->plan->model->list, &reader, &warning, e);
    if (reader != NULL)
        huggingface_close(reader);
    free(warning);
    return good;
}

/* For a main thread that does not find the time: it may be in the middle of anything. A launcher may read no more. */
static void end_at_once(const error *e, bool speaks) {
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (speaks && poll(&out, 1, 1000) == 1)
        dprintf(STDERR_FILENO, "fsdp_train: %s\n", e->message);
    _exit(e->code);
}

static bool watch_nodes(session *s, error *e) {
    char *warning = NULL;
    const bool good = heartbeat_start(&s->world, end_at_once, &warning, e);
    warn(s, warning);
    return good;
}

static bool prepare(session *s, error *e) {
    read_settings(s, s->world.size, s->world.node_of, e);
    if (!world_agree(&s->world, e) || !watch_nodes(s, e))
        return false;
    if (!binding_make(s->config, &s->world, &s->binding, e) || !rings_find(s->config, &s->world, &s->rings, e) ||
        !open_device(s, e))
        return false;
    if (open_data(s, e))
        check_validation(s, e);
    if (!world_agree(&s->world, e))
        return false;
    warn_precision(s);
    /* Every rank must choose the same level of recomputation, so the tightest machine decides. */
    const int64_t budget = -(int64_t)world_maximum(&s->world, -(double)memory_budget(s->device, s->world.local_size));
    if (plan_create(s->config, &s->shape, &s->world, s->device, wishes_of(s), budget, &s->plan, e))
        check_model_folder(s, e);
    if (!world_agree(&s->world, e))
        return false;
    if (s->world.rank == 0) {
        plan_print(s->plan, s->config, stdout);
        if (s->rings.text != NULL)
            printf("rings        %s\n", s->rings.text);
        print_data(s);
    }
    char *crowded = NULL;
    rank_table_print(&s->world, s->device, &s->binding, s->threads, &crowded);
    warn(s, crowded);
    print_peak(s);
    fflush(stdout);
    if (check_memory(s, e))
        s->device->functions->allocate(s->device, (size_t)s->plan->arena_bytes, &s->arena, e);
    return world_agree(&s->world, e);
}

static bool start_runs(session *s, error *e) {
    char *warning = NULL;
    s->trainer.config = s->config;
    s->trainer.world = &s->world;
    s->trainer.device = s->device;
    s->trainer.plan = s->plan;
    s->trainer.data = s->data;
    const bool good = rings_choose(&s->rings, s->plan, &s->world, s->device, &s->arena, s->config->shard.timeout, e) &&
                      create_run(s, s->plan->train, &s->trainer.train, e) &&
                      create_run(s, s->plan->validation, &s->trainer.validation, e);
    if (good)
        rings_compare(&s->rings, &s->world, &warning);
    warn(s, warning);
    rings_release(&s->rings);
    return good && fill_weights(s, e);
}

static void end_metrics(session *s, const train_end *end, const error *e) {
    error unwritten = {0}; /* no failure of a run that has done what it was asked to */
    if (s->trainer.metrics == NULL)
        return;
    const end_reason reason = e->code != 0 ? END_ERROR : end->signal != 0 ? END_SIGNAL : END_FINISHED;
    if (!metrics_end(s->trainer.metrics, reason, end->step, seconds_now() - s->trainer.started,
                     e->code != 0 ? e->message : NULL, &unwritten))
        fprintf(stderr, "fsdp_train: warning: %s; the log has no end event\n", unwritten.message);
}

static int run_training(session *s, error *e) {
    train_end end = {0};
    s->trainer.started = seconds_now();
    if (prepare(s, e) && take_folder(s, e) && start_runs(s, e) && open_output(s, e))
        train(&s->trainer, &end, e);
    end_metrics(s, &end, e);
    output_lock_release(s->lock); /* before printing, which may hang where a launcher reads no more */
    if (e->code == 0 && s->world.rank == 0)
        printf("model        %s/model\n", s->config->output.folder);
    return e->code != 0 ? e->code : end.signal != 0 ? 128 + end.signal : EXIT_FINISHED;
}

static int run_validation(session *s, error *e) {
    double loss = 0;
    if (!prepare(s, e) || !start_runs(s, e))
        return e->code;
    if (s->config->model.from == NULL)
        warn(s,
             memory_format("--validate: without [model] from the model is untrained; what this config has trained is "
                           "model.from=%s/model",
                           s->config->output.folder));
    if (!validate(&s->trainer, &loss, e))
        run_fail(s->trainer.validation, e);
    if (world_agree(&s->world, e) && s->world.rank == 0)
        printf("validation loss %.17g\n", loss);
    return e->code;
}

/* ---- the commands that run nothing ---- */

/* The plan of rank 0 of a job of that many ranks, all on this machine. */
static bool print_plan(session *s, error *e) {
    const int ranks = s->line.ranks > 0 ? s->line.ranks : s->world.size;
    if (!read_settings(s, ranks, NULL, e) || !device_choose_to_plan(s->config, &s->device, e))
        return false;
    warn_precision(s);
    world imagined = world_imagined(ranks);
    const bool validates = s->config->data.validation.count > 0 || s->config->data.validation_fraction > 0;
    const plan_wishes wishes = {.train = true, .validation = validates};
    const bool good =
        plan_create(s->config, &s->shape, &imagined, s->device, wishes, memory_budget(s->device, ranks), &s->plan, e);
    world_close(&imagined);
    if (!good)
        return false;
    plan_print(s->plan, s->config, stdout);
    plan_print_program(s->plan, stdout);
    return true;
}

static int run_command(session *s, error *e) {
    switch (s->line.command) {
    case COMMAND_TRAIN:
        return run_training(s, e);
    case COMMAND_VALIDATE:
        return run_validation(s, e);
    case COMMAND_PLAN:
        if (s->world.rank == 0)
            print_plan(s, e);
        return world_agree(&s->world, e) ? EXIT_FINISHED : e->code;
    case COMMAND_HELP:
    case COMMAND_VERSION:
    case COMMAND_KEYS:
        break;
    }
    return EXIT_INTERNAL;
}

/* Answers that need no world; true when the command was one of them. */
static bool answer(const command_line *line) {
    if (line->command == COMMAND_HELP)
        command_line_help(stdout);
    else if (line->command == COMMAND_VERSION)
        printf("fsdp_train %s\n", FSDP_VERSION);
    else if (line->command == COMMAND_KEYS)
        config_print_keys(stdout);
    else
        return false;
    return true;
}

static void release(session *s) {
    save_close(&s->trainer);
    if (s->trainer.metrics != NULL)
        metrics_close(s->trainer.metrics);
    run_destroy(s->trainer.train);
    run_destroy(s->trainer.validation);
    resume_release(&s->resume);
    plan_destroy(s->plan);
    if (s->data != NULL)
        data_close(s->data);
    if (s->arena.base != NULL)
        s->device->functions->release(s->device, &s->arena);
    if (s->device != NULL)
        s->device->functions->close(s->device);
    if (s->config != NULL)
        config_free(s->config);
    command_line_free(&s->line);
}

int main(int argc, char **argv) {
    session s = {0};
    error e = {0};
    const bool understood = command_line_parse(argc, argv, &s.line, &e);
    if (understood && answer(&s.line)) {
        command_line_free(&s.line);
        return EXIT_FINISHED;
    }
    if (understood && s.line.command == COMMAND_TRAIN)
        signals_install(); /* first: meeting the other ranks takes a while */
    world_open(&s.world, &argc, &argv, &e);
    int code = world_agree(&s.world, &e) ? run_command(&s, &e) : e.code;
    fflush(stdout);
    rings_release(&s.rings);
    if (e.code == 0)
        release(&s);
    else if (world_speaks(&s.world)) /* what others may still be reading stays until all have met in world_close */
        fprintf(stderr, "fsdp_train: %s\n", e.message);
    world_close(&s.world);
    return code;
}
