#include "launch/command_line.h"

#include "engine/checked.h"
#include "launch/nearest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    command command;
} commands[] = {{"--plan", COMMAND_PLAN},
                {"--validate", COMMAND_VALIDATE},
                {"--help", COMMAND_HELP},
                {"--version", COMMAND_VERSION},
                {"--keys", COMMAND_KEYS}};
enum { COMMANDS = sizeof commands / sizeof *commands };
static const char ranks_option[] = "--ranks";
enum { RANKS_MOST = 1000000 };

void command_line_help(FILE *out) {
    fputs(
        "Trains a transformer, its parameters, gradients and optimizer states sharded over the ranks of a job.\n"
        "\n"
        "  fsdp_train config.ini [section.key=value ...]     train; overrides win over the file\n"
        "  mpirun -np N fsdp_train config.ini ...            the same on N ranks\n"
        "  fsdp_train config.ini --plan [--ranks N]          print memory, program and operations; run nothing\n"
        "  fsdp_train config.ini --validate                  validation loss of the model only\n"
        "  fsdp_train --keys                                 every key of config.ini, its default, its meaning\n"
        "  fsdp_train --version\n"
        "\n"
        "A config to start with: launch/configs/quickstart.ini. The run writes metrics.jsonl and model/ (a Hugging\n"
        "Face folder) into [output] folder, with checkpoint_every checkpoints too, from which the next start goes on.\n"
        "SIGUSR1 saves and goes on; SIGINT and SIGTERM end the run after the step, saved.\n"
        "\n"
        "Exit codes: 0 finished, 1 internal fault, 2 usage or config, 3 data, 4 checkpoint or model files,\n"
        "5 launch, communication or device, 128+n ended by signal n after an orderly stop.\n",
        out);
}

static bool unknown_option(const char *option, error *e) {
    const char *nearest = NULL;
    for (int i = 0; i < COMMANDS; i++)
        nearest_consider(option, commands[i].name, &nearest);
    nearest_consider(option, ranks_option, &nearest);
    if (nearest != NULL)
        return error_set(e, EXIT_USAGE, "argument %s: unknown option; did you mean %s?", option, nearest);
    return error_set(e, EXIT_USAGE,
                     "argument %s: unknown option; accepted are --plan, --ranks N, --validate, --help, "
                     "--version, --keys",
                     option);
}

static bool set_command(const char *option, command_line *line, error *e) {
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(option, commands[i].name) != 0)
            continue;
        if (line->command != COMMAND_TRAIN && line->command != commands[i].command)
            return error_set(e, EXIT_USAGE,
                             "argument %s: one of --plan, --validate, --help, --version, --keys at a time", option);
        line->command = commands[i].command;
        return true;
    }
    return unknown_option(option, e);
}

static bool set_ranks(const char *text, command_line *line, error *e) {
    char *end = NULL;
    errno = 0;
    long ranks = text != NULL ? strtol(text, &end, 10) : 0;
    if (text == NULL || *text == '\0' || *end != '\0' || errno != 0 || ranks < 1 || ranks > RANKS_MOST)
        return error_set(e, EXIT_USAGE, "argument --ranks%s%s: takes a whole number, 1 to %d, after a blank",
                         text != NULL ? " " : "", text != NULL ? text : "", RANKS_MOST);
    line->ranks = (int)ranks;
    return true;
}

/* A path may hold "=" behind a slash; an override has none before its "=". */
static bool is_override(const char *argument) {
    size_t name = strcspn(argument, "=/");
    return argument[name] == '=';
}

static bool set_config(const char *path, command_line *line, error *e) {
    if (line->config != NULL)
        return error_set(e, EXIT_USAGE,
                         "argument %s: the config file is %s already; overrides are written section.key=value", path,
                         line->config);
    line->config = path;
    return true;
}

static bool parse_arguments(int argc, char *const *argv, command_line *line, error *e) {
    for (int i = 1; i < argc; i++) {
        bool good = true;
        if (strcmp(argv[i], ranks_option) == 0)
            good = set_ranks(i + 1 < argc ? argv[i + 1] : NULL, line, e), i++;
        else if (argv[i][0] == '-')
            good = set_command(argv[i], line, e);
        else if (is_override(argv[i]))
            line->overrides[line->override_count++] = argv[i];
        else
            good = set_config(argv[i], line, e);
        if (!good)
            return false;
    }
    return true;
}

static bool check_whole(const command_line *line, error *e) {
    bool needs_config = line->command <= COMMAND_VALIDATE;
    if (needs_config && line->config == NULL)
        return error_set(e, EXIT_USAGE, "no config file given; type fsdp_train config.ini, or fsdp_train --help");
    if (line->ranks > 0 && line->command != COMMAND_PLAN)
        return error_set(e, EXIT_USAGE, "argument --ranks: belongs to --plan; mpirun -np %d starts %d ranks",
                         line->ranks, line->ranks);
    return true;
}

bool command_line_parse(int argc, char *const *argv, command_line *line, error *e) {
    *line = (command_line){.overrides = memory_allocate((size_t)argc, sizeof *line->overrides)};
    if (parse_arguments(argc, argv, line, e) && check_whole(line, e))
        return true;
    command_line_free(line);
    return false;
}

void command_line_free(command_line *line) {
    free(line->overrides);
    line->overrides = NULL;
    line->override_count = 0;
}
