/* The command line of fsdp_train. */
#ifndef FSDP_LAUNCH_COMMAND_LINE_H
#define FSDP_LAUNCH_COMMAND_LINE_H

#include "engine/error.h"

#include <stdio.h>

typedef enum command {
    COMMAND_TRAIN,
    COMMAND_PLAN,     /* print what a run would do */
    COMMAND_VALIDATE, /* validation loss of the model */
    COMMAND_HELP,
    COMMAND_VERSION,
    COMMAND_KEYS
} command;

/* Texts are argv's own. */
typedef struct command_line {
    command command;
    const char *config;     /* path; NULL for help, version and keys */
    int ranks;              /* --ranks of a plan; 0: those of the job */
    const char **overrides; /* "section.key=value", for config_read */
    int override_count;
} command_line;

/* Errors are EXIT_USAGE. command_line_free releases what a success holds. */
bool command_line_parse(int argc, char *const *argv, command_line *line, error *e);
void command_line_free(command_line *line);

void command_line_help(FILE *out);

#endif
