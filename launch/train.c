#include "launch/train.h"

#include "engine/checked.h"
#include "engine/device/update.h"
#include "launch/imbalance.h"
#include "launch/machine.h"
#include "launch/progress.h"
#include "launch/save.h"
#include "launch/signals.h"
#include "launch/trace_file.h"
#include "optim/learning_rate.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

enum { SKIPPED_IN_A_ROW = 10, HOST_NAME = 64 };

double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* What the steps go through. */
typedef struct loop {
    progress *shown;   /* NULL on ranks above 0 */
    trace *trace;      /* NULL: none is made */
    position at;       /* behind the last step */
    int64_t steps;     /* done since the start */
    step_shares spent; /* on them, by all ranks together */
    double exchange;   /* seconds of the last step's notices, which belong to the next step */
    laggards laggards;
    char (*hosts)[HOST_NAME]; /* [ranks] */
    struct notice *notices;   /* [ranks], of all; then of this one */
} loop;

/* What ranks tell each other between steps. */
typedef struct notice {
    int end_signal; /* the strongest wins */
    bool save;
    bool idle; /* what was being saved in the background is done, on every rank */
    int64_t memory;
    step_shares shares;
} notice;

/* What they say together. */
typedef struct joint_notice {
    int end_signal;
    bool save, idle;
    int64_t memory; /* the largest */
    imbalance imbalance;
    int laggard; /* a rank to be warned of; -1: none */
    double behind;
} joint_notice;

/* Of the device that has its own; else of the process. */
static int64_t memory_in_use(const device *d) {
    const device_capacity own = d->functions->capacity(d);
    return own.total > 0 ? own.total - own.available : machine_resident();
}

static joint_notice join_notices(loop *l, const notice *all, int ranks) {
    step_shares *shares = memory_allocate((size_t)ranks, sizeof *shares);
    joint_notice joint = {.idle = true};
    for (int rank = 0; rank < ranks; rank++) {
        joint.end_signal = (int)maximum(joint.end_signal, all[rank].end_signal);
        joint.save |= all[rank].save;
        joint.idle &= all[rank].idle;
        joint.memory = maximum(joint.memory, all[rank].memory);
        shares[rank] = all[rank].shares;
    }
    joint.imbalance = imbalance_of(shares, ranks);
    joint.laggard = laggards_watch(&l->laggards, shares, &joint.behind);
    free(shares);
    return joint;
}

/* A rank that stands still may do so here as well as in a collective. */
static bool exchange_notices(trainer *t, loop *l, step_shares own, joint_notice *joint, error *e) {
    world *w = t->world;
    notice *all = l->notices, *mine = l->notices + w->size;
    *mine = (notice){signals_end(), signals_take_save(), save_idle(t), memory_in_use(t->device), own};
    if (!world_all_gather_within(w, mine, sizeof *mine, all, t->config->shard.timeout))
        return run_time_out(t->train, e);
    *joint = join_notices(l, all, w->size);
    return true;
}

/* ---- a step ---- */

typedef struct host_batch {
    int32_t *tokens, *targets, *order;
    double *scalars;
} host_batch;

static host_batch host_batch_of(run *r) {
    size_t bytes;
    return (host_batch){run_host(r, HOST_TOKENS, &bytes), run_host(r, HOST_TARGETS, &bytes),
                        run_host(r, HOST_ORDER, &bytes), run_host(r, HOST_SCALARS, &bytes)};
}

static int64_t tokens_of_pass(const trainer *t) {
    return t->config->train.micro_batch * t->config->train.sequence;
}

static double rate_of(const config *c, int64_t step) {
    const rate_settings settings = {.schedule = (rate_schedule)c->optimizer.schedule,
                                    .rate = c->optimizer.learning_rate,
                                    .minimum = c->optimizer.minimum_learning_rate,
                                    .warmup = c->optimizer.warmup,
                                    .steps = c->train.steps};
    return learning_rate(&settings, step);
}

static bool fill_training_batch(trainer *t, int64_t step, error *e) {
    const host_batch host = host_batch_of(t->train);
    const int64_t tokens = tokens_of_pass(t);
    for (int64_t pass = 0; pass < t->plan->passes; pass++)
        if (!data_training_batch(t->data, step, data_micro_batch(pass, t->world->rank, t->world->size),
                                 host.tokens + pass * tokens, host.targets + pass * tokens, host.order + pass * tokens,
                                 e))
            return false;
    host.scalars[SCALAR_GRADIENT_SCALE] = 1 / (double)data_training_counted(t->data);
    host.scalars[SCALAR_LEARNING_RATE] = rate_of(t->config, step);
    return true;
}

/* A number as it is shown: the sign of what is no number says nothing. */
static double plain(double value) {
    return isnan(value) ? NAN : value;
}

/* FLOP/s of a rank's device; NAN: not known. */
static double peak_of_device(const trainer *t) {
    const device_functions *f = t->device->functions;
    return f->peak == NULL ? NAN : f->peak(t->device, t->plan->precision.storage, t->plan->precision.tf32).flops;
}

static step_report report_of(const trainer *t, const position *before, const double *result, double seconds) {
    const int64_t tokens = data_training_counted(t->data);
    const double flops = model_flops_per_token(t->plan->model, t->config->train.sequence);
    const double rate = flops * (double)tokens / seconds / t->world->size;
    return (step_report){.step = before->step + 1,
                         .loss = plain(result[RESULT_LOSS]),
                         .gradient_norm = plain(result[RESULT_NORM]),
                         .learning_rate = rate_of(t->config, before->step),
                         .overflow = result[RESULT_OVERFLOW] != 0,
                         .loss_scale = t->plan->precision.loss_scale > 0 ? result[RESULT_LOSS_SCALE] : 0,
                         .tokens = before->tokens + tokens,
                         .seconds = seconds,
                         .tokens_per_second = (double)tokens / seconds,
                         .tflops = rate / 1e12,
                         .mfu = rate / peak_of_device(t)};
}

/* Every rank has the same result, so every rank decides alike. *skipped counts bad steps in a row; overflows of dynamic
 * loss scaling are no bad steps, and say nothing about those around them. */
static bool judge(const trainer *t, int64_t step, const double *result, int *skipped, error *e) {
    if (result[RESULT_OVERFLOW] != 0)
        return true;
    if (result[RESULT_BAD] == 0) {
        *skipped = 0;
        return true;
    }
    const int unit = (int)result[RESULT_BAD_UNIT];
    const char *where = unit < 0 ? "loss" : t->plan->model->list.unit_names[unit];
    const char *what = unit < 0 ? "the " : "the gradient of ";
    const precision_settings *precision = &t->plan->precision;
    const bool constant_scale = precision->loss_scale > 0 && precision->loss_scale_interval == 0;
    const char *advice =
        unit >= 0 && constant_scale ? "lower precision.loss_scale, or make it dynamic" : "lower the learning rate";
    if (t->config->train.nonfinite == CONFIG_NONFINITE_STOP)
        return error_set(
            e, EXIT_INTERNAL,
            "step %lld: %s%s is not finite (loss %g, gradient norm %g); %s, or train.nonfinite = skip leaves "
            "such updates out",
            (long long)step + 1, what, where, plain(result[RESULT_LOSS]), plain(result[RESULT_NORM]), advice);
    if (++*skipped == SKIPPED_IN_A_ROW)
        return error_set(e, EXIT_INTERNAL, "step %lld: %s%s is not finite, for the %dth step in a row; %s",
                         (long long)step + 1, what, where, SKIPPED_IN_A_ROW, advice);
    return true;
}

/* ---- validation ---- */

/* Sums the losses of one validation batch in the order of its micro-batches. */
static double sum_losses(const trainer *t, const double *losses) {
    double sum = 0;
    for (int64_t pass = 0; pass < t->plan->passes; pass++)
        for (int rank = 0; rank < t->world->size; rank++)
            sum += losses[rank * t->plan->passes + pass];
    return sum;
}

bool validate(trainer *t, double *loss, error *e) {
    const host_batch host = host_batch_of(t->validation);
    int32_t *order = memory_allocate((size_t)tokens_of_pass(t), sizeof *order);
    size_t bytes;
    const double *losses = run_host(t->validation, HOST_RESULT, &bytes);
    double sum = 0, counted = 0;
    bool good = true;
    for (int64_t batch = 0; batch < data_describe(t->data).validation_batches && good; batch++) {
        for (int64_t pass = 0; pass < t->plan->passes && good; pass++)
            good = data_validation_batch(t->data, batch, data_micro_batch(pass, t->world->rank, t->world->size),
                                         host.tokens + pass * tokens_of_pass(t),
                                         host.targets + pass * tokens_of_pass(t), order, e);
        good = good && run_step(t->validation, e);
        sum += sum_losses(t, losses);
        counted += (double)data_validation_counted(t->data, batch);
    }
    free(order);
    *loss = sum / counted;
    return good;
}

/* ---- the loop ---- */

static bool validate_and_report(trainer *t, progress *shown, int64_t step, error *e) {
    double loss = 0;
    if (!validate(t, &loss, e))
        return false;
    if (t->world->rank > 0)
        return true;
    progress_note(shown, "validation loss %.4f", loss);
    return metrics_validation(t->metrics, step, loss, e);
}

/* Where this rank's seconds of a step went, all told. */
static step_shares shares_of(trainer *t, const loop *l, int64_t step, double in_step, double seconds) {
    const collectives_times gather = run_communication(t->train, STREAM_GATHER);
    const collectives_times reduce = run_communication(t->train, STREAM_REDUCE);
    step_shares shares = {.gather = gather.waiting + gather.moving, .reduce = reduce.waiting + reduce.moving};
    const double exposed = exposed_seconds(&shares);
    shares.compute = in_step - (isnan(exposed) ? 0 : exposed);
    if (trace_step(l->trace, step + 1) != NULL) /* it knows what the executor itself took */
        shares = trace_shares(l->trace, step + 1);
    shares.idle += seconds - in_step;
    return shares;
}

static void note_shares(const loop *l, const char *what, step_shares sum, double count) {
    const double exposed = exposed_seconds(&sum);
    const double seconds = sum.compute + (isnan(exposed) ? 0 : exposed) + sum.idle;
    if (isnan(exposed)) {
        progress_note(l->shown, "%s %.4g s, exposed communication included; output.trace measures it", what,
                      seconds / count);
        return;
    }
    progress_note(l->shown, "%s %.4g s: compute %.1f %%, exposed communication %.1f %%, idle %.1f %%", what,
                  seconds / count, 100 * sum.compute / seconds, 100 * exposed / seconds, 100 * sum.idle / seconds);
}

/* The rank's own host, since rank 0 speaks for it. */
static void warn_of_laggard(const loop *l, const joint_notice *joint) {
    if (joint->laggard >= 0)
        progress_warning(l->shown,
                         "rank %d (%s) has computed %.0f %% longer than the mean of all ranks for 20 steps, and the "
                         "others wait for it; look for other work on its cores, slower clocks, or memory that is far "
                         "from them",
                         joint->laggard, l->hosts[joint->laggard], 100 * joint->behind);
}

static bool report_step(trainer *t, loop *l, const step_report *report, const joint_notice *joint, error *e) {
    if (!metrics_step(t->metrics, report, e))
        return false;
    progress_step(l->shown, report);
    if (report->overflow)
        progress_note(l->shown,
                      "step %lld: gradients overflow with loss scale %g: no update, and half of it from now on",
                      (long long)report->step, report->loss_scale);
    if (t->unsaved && report->step % t->config->output.log_every == 0)
        progress_note(l->shown, "warning: no checkpoint since step %lld", (long long)maximum(t->saved, 0));
    if (trace_step(l->trace, report->step) != NULL) {
        char *what = memory_format("step %lld, traced:", (long long)report->step);
        note_shares(l, what, joint->imbalance.sum, t->world->size);
        free(what);
    }
    warn_of_laggard(l, joint);
    return true;
}

static void report_imbalance(step_report *report, const imbalance *of) {
    report->exposed = of->exposed;
    report->compute = of->compute;
    report->slowest = of->slowest;
    report->imbalance = of->slowest_shares.compute / of->compute;
    report->exposed_gather = of->slowest_shares.gather;
    report->exposed_reduce = of->slowest_shares.reduce;
    report->idle = of->slowest_shares.idle;
}

static void advance(const trainer *t, position *at) {
    at->step++;
    at->windows += t->config->train.global_batch;
    at->tokens += data_training_counted(t->data);
}

static bool one_step(trainer *t, loop *l, int64_t step, joint_notice *joint, error *e) {
    const double start = seconds_now();
    step_times *times = trace_step(l->trace, step + 1);
    size_t bytes;
    if (!fill_training_batch(t, step, e))
        return false;
    const double filled = seconds_now();
    if (!(times == NULL ? run_step(t->train, e) : run_step_timed(t->train, times, e)))
        return false;
    const double *result = run_host(t->train, HOST_RESULT, &bytes), end = seconds_now();
    const double seconds = end - start + l->exchange;
    if (!exchange_notices(t, l, shares_of(t, l, step, end - filled, seconds), joint, e))
        return false;
    l->exchange = seconds_now() - end;
    l->spent = shares_sum(l->spent, joint->imbalance.sum);
    l->steps++;
    step_report report = report_of(t, &l->at, result, seconds);
    report.memory = joint->memory;
    report_imbalance(&report, &joint->imbalance);
    if (t->world->rank == 0 && !report_step(t, l, &report, joint, e))
        return false;
    advance(t, &l->at);
    /* Every rank judges alike, so that a checkpoint on its way can still be completed. */
    return judge(t, step, result, &l->at.skipped, e) || (save_finish(t, e), false);
}

static bool time_to_validate(const trainer *t, int64_t step) {
    const int64_t every = t->config->train.validate_every;
    return t->validation != NULL && ((every > 0 && (step + 1) % every == 0) || step + 1 == t->config->train.steps);
}

/* Behind the last traced step, or behind the last step of a run that is stopped before. `done`: steps done. */
static bool save_trace(trainer *t, const loop *l, int64_t done, bool stops, error *e) {
    const double *chosen = t->config->output.trace_steps;
    const int64_t first = maximum((int64_t)chosen[0], t->start.step + 1), last = (int64_t)chosen[1];
    if (l->trace == NULL || done < first || done > last || (done < last && !stops))
        return true;
    if (!trace_file_write(t->world, l->trace, first, done, t->config->output.folder, e))
        return false;
    if (t->world->rank == 0)
        progress_note(l->shown, "trace        %s/trace.json", t->config->output.folder);
    return true;
}

static bool time_to_save(const trainer *t, const train_end *end, bool asked) {
    const int64_t every = t->config->output.checkpoint_every;
    const bool last = end->step == t->config->train.steps;
    return asked || end->signal != 0 || (every > 0 && (end->step % every == 0 || last));
}

static bool train_steps(trainer *t, loop *l, train_end *end, error *e) {
    for (int64_t step = l->at.step; step < t->config->train.steps && end->signal == 0; step++) {
        joint_notice joint = {.laggard = -1};
        if (!one_step(t, l, step, &joint, e) || !save_trace(t, l, step + 1, joint.end_signal != 0, e))
            return false;
        if (step == t->start.step)
            run_enlarge_pages(t->train);
        if (time_to_validate(t, step) && !validate_and_report(t, l->shown, step + 1, e))
            return false;
        end->step = step + 1;
        end->signal = joint.end_signal;
        if (joint.idle && !save_advance(t, e))
            return false;
        const bool ends = end->signal != 0 || end->step == t->config->train.steps;
        if (time_to_save(t, end, joint.save) && !save_checkpoint(t, &l->at, ends, e))
            return false;
        if (joint.save && end->signal == 0 && step + 1 < t->config->train.steps && !save_model(t, e))
            return false;
    }
    return save_finish(t, e);
}

static void end_progress(const trainer *t, loop *l) {
    if (l->shown == NULL)
        return;
    if (l->steps > 0)
        note_shares(l, "a step took", l->spent, (double)l->steps * t->world->size);
    progress_destroy(l->shown);
}

static loop start_loop(const trainer *t) {
    char host[HOST_NAME] = {0};
    loop l = {.at = t->start, .laggards = laggards_create(t->world->size)};
    snprintf(host, sizeof host, "%s", t->world->host);
    l.hosts = memory_allocate((size_t)t->world->size, sizeof host);
    l.notices = memory_allocate((size_t)t->world->size + 1, sizeof *l.notices);
    world_all_gather(t->world, host, sizeof host, l.hosts);
    return l;
}

bool train(trainer *t, train_end *end, error *e) {
    const config_output *output = &t->config->output;
    loop l = start_loop(t);
    *end = (train_end){.step = t->start.step};
    data_continue(t->data, t->start.step, t->start.windows);
    if (t->world->rank == 0)
        l.shown = progress_create(stdout, t->start.step + 1, t->config->train.steps, output->log_every);
    if (output->trace == CONFIG_YES)
        l.trace =
            trace_create(t->plan->train->program, (int64_t)output->trace_steps[0], (int64_t)output->trace_steps[1]);
    bool good = train_steps(t, &l, end, e);
    end_progress(t, &l);
    trace_destroy(l.trace);
    laggards_release(&l.laggards);
    free(l.hosts);
    if (good)
        free(l.notices);
    else /* an exchange of notices may still be under way */
        run_fail(t->train, e);
    good = world_agree(t->world, e);
    save_abandon(t);
    return good && save_model(t, e);
}
