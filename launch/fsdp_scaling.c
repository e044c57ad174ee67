/* fsdp_scaling: how a config's training scales over ranks, and what it loses. */
#include "engine/checked.h"
#include "launch/config.h"
#include "launch/hostfile.h"
#include "launch/nearest.h"
#include "launch/output_folder.h"
#include "launch/scaling.h"
#include "launch/scaling_launch.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SKIPPED = 3, /* the first steps meet new memory */
    STEPS = 30,
    STEPS_FEWEST = SKIPPED + 4,
    STEPS_MOST = 100,
    REPEATS = 3,
    REPEATS_MOST = 1000,
    RANKS_MOST = 1000000
};

typedef struct request {
    const char *config, *launcher;
    const char **overrides;
    int override_count;
    int *ranks, counts; /* growing */
    int repeats, steps;
    bool strong, help, version;
} request;

static void print_help(void) {
    puts("Measures how training scales over ranks, and where the rest of the time goes.\n"
         "\n"
         "  fsdp_scaling config.ini --ranks 1,2,4,8 [section.key=value ...]\n"
         "\n"
         "  --ranks N,N...      numbers of ranks to run at; the smallest is what the others are compared with\n"
         "  --mode weak         global_batch, which is the smallest number's, grows with the ranks (default)\n"
         "  --mode strong       global_batch stays\n"
         "  --repeat N          runs at each number, one number after the other, then again (default 3)\n"
         "  --steps N           steps of a run (default 30), of which the first 3 are not counted\n"
         "  --launcher WORDS    what starts N ranks when \"-n N\" and the program follow (default mpirun), as\n"
         "                      \"mpirun --oversubscribe --hostfile hosts\" or \"srun\"\n"
         "\n"
         "Prints tokens/s, speed-up, efficiency and what a step is made of; writes them to scaling.csv, scaling.json "
         "and\n"
         "scaling.svg in [output] folder/scaling, beside the metrics of every run. Overrides go to fsdp_train; steps,\n"
         "validation, checkpoints and traces are the measurement's own.\n"
         "\n"
         "Exit codes: 0 finished, 1 internal fault, 2 usage or config, else fsdp_train's, or 5 when the launcher "
         "fails\n"
         "or a node of its --hostfile cannot be reached.");
}

/* ---- the command line ---- */

static int by_size(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

static bool refuse_ranks(const char *text, error *e) {
    return error_set(e, EXIT_USAGE,
                     "argument --ranks %s: takes different whole numbers from 1 to %d with commas between them, as "
                     "1,2,4,8",
                     text, RANKS_MOST);
}

static bool set_ranks(request *r, const char *text, error *e) {
    const char *at = text;
    free(r->ranks);
    r->ranks = memory_allocate(strlen(text) + 1, sizeof *r->ranks);
    r->counts = 0;
    for (;;) {
        char *end = NULL;
        errno = 0;
        const long ranks = strtol(at, &end, 10);
        if (*at < '0' || *at > '9' || errno != 0 || ranks < 1 || ranks > RANKS_MOST || (*end != ',' && *end != '\0'))
            return refuse_ranks(text, e);
        r->ranks[r->counts++] = (int)ranks;
        if (*end == '\0')
            break;
        at = end + 1;
    }
    qsort(r->ranks, (size_t)r->counts, sizeof *r->ranks, by_size);
    for (int i = 1; i < r->counts; i++)
        if (r->ranks[i] == r->ranks[i - 1])
            return refuse_ranks(text, e);
    return true;
}

static bool set_number(const char *option, const char *text, int fewest, int most, int *number, error *e) {
    char *end = NULL;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < fewest || value > most)
        return error_set(e, EXIT_USAGE, "argument %s %s: takes a whole number, %d to %d", option, text, fewest, most);
    *number = (int)value;
    return true;
}

static bool set_mode(request *r, const char *text, error *e) {
    r->strong = strcmp(text, "strong") == 0;
    return r->strong || strcmp(text, "weak") == 0 ||
           error_set(e, EXIT_USAGE, "argument --mode %s: accepted are weak, strong", text);
}

static bool unknown_option(const char *option, error *e) {
    static const char *const names[] = {"--ranks",    "--mode", "--repeat", "--steps",
                                        "--launcher", "--help", "--version"};
    const char *nearest = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        nearest_consider(option, names[i], &nearest);
    return error_set(e, EXIT_USAGE, "argument %s: unknown option%s%s; see fsdp_scaling --help", option,
                     nearest != NULL ? "; did you mean " : "", nearest != NULL ? nearest : "");
}

static bool takes_value(const char *option) {
    static const char *const names[] = {"--ranks", "--mode", "--repeat", "--steps", "--launcher"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(option, names[i]) == 0)
            return true;
    return false;
}

static bool set_option(request *r, const char *option, const char *value, error *e) {
    if (strcmp(option, "--help") == 0)
        return r->help = true;
    if (strcmp(option, "--version") == 0)
        return r->version = true;
    if (!takes_value(option))
        return unknown_option(option, e);
    if (value == NULL || value[0] == '\0')
        return error_set(e, EXIT_USAGE, "argument %s: a value is missing; see fsdp_scaling --help", option);
    if (strcmp(option, "--ranks") == 0)
        return set_ranks(r, value, e);
    if (strcmp(option, "--mode") == 0)
        return set_mode(r, value, e);
    if (strcmp(option, "--repeat") == 0)
        return set_number(option, value, 1, REPEATS_MOST, &r->repeats, e);
    if (strcmp(option, "--steps") == 0)
        return set_number(option, value, STEPS_FEWEST, STEPS_MOST, &r->steps, e);
    r->launcher = value;
    return true;
}

/* A path may hold "=" behind a slash; an override has none before its "=". */
static bool is_override(const char *argument) {
    return argument[strcspn(argument, "=/")] == '=';
}

static bool set_config(request *r, const char *path, error *e) {
    if (r->config != NULL)
        return error_set(e, EXIT_USAGE,
                         "argument %s: the config file is %s already; overrides are written section.key=value", path,
                         r->config);
    r->config = path;
    return true;
}

static bool parse(int count, char **arguments, request *r, error *e) {
    for (int i = 1; i < count; i++) {
        bool good = true;
        if (arguments[i][0] == '-') {
            good = set_option(r, arguments[i], i + 1 < count ? arguments[i + 1] : NULL, e);
            i += takes_value(arguments[i]);
        } else if (is_override(arguments[i])) {
            r->overrides[r->override_count++] = arguments[i];
        } else {
            good = set_config(r, arguments[i], e);
        }
        if (!good)
            return false;
    }
    if (r->help || r->version)
        return true;
    if (r->config == NULL)
        return error_set(e, EXIT_USAGE,
                         "no config file given; type fsdp_scaling config.ini --ranks 1,2,4,8, or "
                         "fsdp_scaling --help");
    return r->counts > 0 || error_set(e, EXIT_USAGE, "no numbers of ranks given; add --ranks 1,2,4,8");
}

/* ---- the runs ---- */

typedef struct session {
    const request *request;
    config *config;
    char *folder; /* [output] folder/scaling */
    scaling scaling;
} session;

static int64_t batch_of(const session *s, int ranks) {
    const int64_t given = s->config->train.global_batch;
    return s->scaling.weak ? must_multiply(given, ranks) / s->request->ranks[0] : given;
}

static void list_points(session *s) {
    const request *r = s->request;
    s->scaling = (scaling){.config = r->config,
                           .weak = !r->strong,
                           .repeats = r->repeats,
                           .steps = r->steps,
                           .skipped = SKIPPED,
                           .count = r->counts};
    s->scaling.points = memory_allocate((size_t)r->counts, sizeof *s->scaling.points);
    for (int i = 0; i < r->counts; i++) {
        scaling_point *p = &s->scaling.points[i];
        p->ranks = r->ranks[i];
        p->global_batch = batch_of(s, p->ranks);
        p->runs = memory_allocate((size_t)r->repeats, sizeof *p->runs);
    }
}

static scaling_launch launch_of(const session *s, const scaling_point *p) {
    return (scaling_launch){.launcher = s->request->launcher,
                            .config = s->request->config,
                            .overrides = s->request->overrides,
                            .override_count = s->request->override_count,
                            .ranks = p->ranks,
                            .global_batch = p->global_batch,
                            .steps = s->scaling.steps,
                            .skipped = SKIPPED,
                            /* Only a CPU measures each step; other devices measure those that they trace. */
                            .traced = s->config->device.kind != CONFIG_DEVICE_CPU,
                            .folder = s->folder};
}

static bool measure(session *s, int repeat, int point, error *e) {
    scaling_point *p = &s->scaling.points[point];
    const scaling_launch how = launch_of(s, p);
    char *metrics = memory_format("%s/ranks-%d-run-%d.jsonl", s->folder, p->ranks, repeat + 1);
    const bool good = scaling_launch_run(&how, metrics, e) && scaling_read(metrics, SKIPPED, &p->runs[repeat], e);
    free(metrics);
    if (!good)
        return false;
    printf("run %d of %d: %d rank%s, %.0f tokens/s\n", repeat * s->scaling.count + point + 1,
           s->scaling.count * s->scaling.repeats, p->ranks, p->ranks == 1 ? "" : "s",
           p->runs[repeat].tokens / p->runs[repeat].seconds);
    fflush(stdout);
    return true;
}

static bool measure_all(session *s, error *e) {
    for (int i = 0; i < s->scaling.count; i++) {
        const scaling_launch how = launch_of(s, &s->scaling.points[i]);
        if (!scaling_launch_check(&how, e))
            return false;
    }
    for (int repeat = 0; repeat < s->scaling.repeats; repeat++)
        for (int i = 0; i < s->scaling.count; i++)
            if (!measure(s, repeat, i, e))
                return false;
    return true;
}

/* Other work on the machine is in every figure. */
static void warn_of_load(void) {
    double load = 0;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (getloadavg(&load, 1) == 1 && load > 0.25 * (double)cores)
        fprintf(stderr,
                "fsdp_scaling: warning: the load average is %.1f on %ld cores before anything runs: other work "
                "takes part in the figures\n",
                load, cores);
}

/* ---- results ---- */

static bool write_file(const session *s, const char *name, void (*write)(const scaling *, FILE *), error *e) {
    char *path = memory_format("%s/%s", s->folder, name);
    FILE *out = fopen(path, "w");
    bool good = out != NULL;
    if (good) {
        write(&s->scaling, out);
        good = ferror(out) == 0;
        good = fclose(out) == 0 && good;
    }
    if (!good)
        error_set(e, EXIT_USAGE, "%s: cannot write: %s", path, strerror(errno));
    free(path);
    return good;
}

static bool write_results(const session *s, error *e) {
    scaling_print(&s->scaling, stdout);
    if (!write_file(s, "scaling.csv", scaling_write_csv, e) || !write_file(s, "scaling.json", scaling_write_json, e) ||
        !write_file(s, "scaling.svg", scaling_write_svg, e))
        return false;
    printf("\nwritten to %s: scaling.csv, scaling.json, scaling.svg\n", s->folder);
    return true;
}

static bool run_session(session *s, error *e) {
    const request *r = s->request;
    if (!config_read(r->config, r->overrides, r->override_count, &s->config, e))
        return false;
    const int64_t batch = s->config->train.global_batch;
    if (!r->strong && batch % r->ranks[0] != 0)
        return config_refuse(s->config, &s->config->train.global_batch, e,
                             "not a multiple of the smallest number of ranks, %d, with which it grows", r->ranks[0]);
    s->folder = memory_format("%s/scaling", s->config->output.folder);
    if (!output_folder_prepare(s->folder, e))
        return false;
    list_points(s);
    warn_of_load();
    if (!hostfile_check(r->launcher, e) || !measure_all(s, e))
        return false;
    scaling_compare(&s->scaling);
    return write_results(s, e);
}

static void release(session *s) {
    for (int i = 0; i < s->scaling.count; i++)
        free(s->scaling.points[i].runs);
    free(s->scaling.points);
    free(s->folder);
    if (s->config != NULL)
        config_free(s->config);
}

int main(int argc, char **argv) {
    error e = {0};
    request r = {.launcher = "mpirun",
                 .overrides = memory_allocate((size_t)argc, sizeof *r.overrides),
                 .repeats = REPEATS,
                 .steps = STEPS};
    session s = {.request = &r};
    signal(SIGCHLD, SIG_DFL); /* inherited as ignored, it would leave nothing of the processes to wait for */
    const bool good = parse(argc, argv, &r, &e);
    if (good && r.help)
        print_help();
    else if (good && r.version)
        puts("fsdp_scaling " FSDP_VERSION);
    else if (good)
        run_session(&s, &e);
    fflush(stdout);
    if (e.code != 0)
        fprintf(stderr, "fsdp_scaling: %s\n", e.message);
    release(&s);
    free(r.ranks);
    free(r.overrides);
    return e.code;
}
