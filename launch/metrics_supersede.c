/* Takes out of metrics.jsonl what a resumed run is going to do again. */
#include "engine/checked.h"
#include "launch/metrics.h"
#include "shard/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct names {
    char *current, *next, *superseded;
} names;

/* Half a line of a killed run counts as superseded: nobody can read it. */
static bool is_superseded(const char *line, int64_t step) {
    json_t *event = json_loads(line, JSON_REJECT_DUPLICATES, NULL), *of = json_object_get(event, "step");
    const bool superseded = event == NULL || (json_is_integer(of) && json_integer_value(of) > step);
    json_decref(event);
    return superseded;
}

static bool put_line(FILE *to, const char *line) {
    return fputs(line, to) >= 0 && (line[0] == '\0' || line[strlen(line) - 1] == '\n' || fputc('\n', to) >= 0);
}

/* Splits the lines; *moved: how many are superseded. `superseded` NULL: only counts. */
static bool split(FILE *from, int64_t step, FILE *kept, FILE *superseded, int64_t *moved) {
    char *line = NULL;
    size_t room = 0;
    bool good = true;
    *moved = 0;
    rewind(from);
    while (good && getline(&line, &room, from) > 0) {
        const bool moves = is_superseded(line, step);
        *moved += moves;
        good = kept == NULL || put_line(moves ? superseded : kept, line);
    }
    free(line);
    return good && !ferror(from);
}

static bool finish(FILE *file) {
    const bool good = fflush(file) == 0 && fsync(fileno(file)) == 0;
    return (fclose(file) == 0) & good;
}

static bool move_lines(FILE *from, const names *n, int64_t step, int64_t count) {
    FILE *kept = fopen(n->next, "we"), *superseded = fopen(n->superseded, "ae");
    bool good = kept != NULL && superseded != NULL &&
                fprintf(superseded, "{\"event\":\"superseded\",\"after\":%lld,\"lines\":%lld}\n", (long long)step,
                        (long long)count) > 0 &&
                split(from, step, kept, superseded, &count);
    if (superseded != NULL)
        good &= finish(superseded);
    if (kept != NULL)
        good &= finish(kept);
    return good && rename(n->next, n->current) == 0;
}

bool metrics_supersede(const char *folder, int64_t step, error *e) {
    names n = {memory_format("%s/metrics.jsonl", folder), memory_format("%s/metrics.jsonl.incomplete", folder),
               memory_format("%s/metrics.superseded.jsonl", folder)};
    FILE *from = fopen(n.current, "re");
    int64_t count = 0;
    bool good = from != NULL ? split(from, step, NULL, NULL, &count) : errno == ENOENT;
    if (good && count > 0)
        good = move_lines(from, &n, step, count) && folder_sync(folder, e);
    if (!good)
        error_set(e, EXIT_USAGE, "%s: cannot move superseded lines to %s: %s", n.current, n.superseded,
                  strerror(errno));
    if (from != NULL)
        fclose(from);
    free(n.current);
    free(n.next);
    free(n.superseded);
    return good;
}
