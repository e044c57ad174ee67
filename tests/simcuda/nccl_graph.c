#include "nccl_graph.h"
#include "simcuda.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MOST = 1 << 20, WORD = 64, DEVICES_MOST = 256, PATTERN_RING = 4 };

/* A file under way: `at` stands before the next tag. */
typedef struct reader {
    const char *path;
    const char *at;
    char name[WORD];        /* of the tag read last; "/channel" of a closing one */
    const char *attributes; /* up to '>' */
} reader;

static char *read_file(const char *path) {
    FILE *file = fopen(path, "r");
    if (file == NULL)
        simcuda_refuse("NCCL: the graph file %s cannot be opened: %s", path, strerror(errno));
    char *text = calloc(1, FILE_MOST);
    const size_t length = fread(text, 1, FILE_MOST - 1, file);
    fclose(file);
    text[length] = '\0';
    return text;
}

static bool next_tag(reader *r) {
    const char *begin = strchr(r->at, '<'), *end = begin != NULL ? strchr(begin, '>') : NULL;
    if (end == NULL)
        return false;
    size_t length = strcspn(begin + 1, " />\n");
    if (begin[1] == '/')
        length = 1 + strcspn(begin + 2, " >\n");
    snprintf(r->name, sizeof r->name, "%.*s", (int)length, begin + 1);
    r->attributes = begin + 1 + length;
    r->at = end + 1;
    return true;
}

/* An attribute of the tag read last. */
static const char *attribute(const reader *r, const char *name, char text[WORD]) {
    char wanted[WORD];
    snprintf(wanted, sizeof wanted, " %s=\"", name);
    const char *found = strstr(r->attributes, wanted);
    if (found == NULL || found >= r->at)
        simcuda_refuse("NCCL: the graph file %s has a <%s> without %s", r->path, r->name, name);
    found += strlen(wanted);
    snprintf(text, WORD, "%.*s", (int)strcspn(found, "\""), found);
    return text;
}

static long number(const reader *r, const char *name, int base) {
    char text[WORD], *end;
    const long value = strtol(attribute(r, name, text), &end, base);
    if (end == text || *end != '\0')
        simcuda_refuse("NCCL: the graph file %s has a <%s> with %s=\"%s\", which is no number", r->path, r->name, name,
                       text);
    return value;
}

static void check_speed(const reader *r, const char *name) {
    char text[WORD], *end;
    const double speed = strtod(attribute(r, name, text), &end);
    if (end == text || *end != '\0' || !(speed > 0))
        simcuda_refuse("NCCL: the graph file %s has %s=\"%s\"; a speed is above 0", r->path, name, text);
}

static void check_path_type(const reader *r, const char *name) {
    static const char *const known[] = {"LOC", "NVL", "NVB", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS"};
    char text[WORD];
    attribute(r, name, text);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(text, known[i]) == 0)
            return;
    simcuda_refuse("NCCL: the graph file %s has %s=\"%s\", which is no kind of path", r->path, name, text);
}

/* Up to </channel>. */
static void check_channel(reader *r, long channel, const int *devices, int count) {
    bool seen[DEVICES_MOST] = {false};
    int gpus = 0;
    while (next_tag(r) && strcmp(r->name, "/channel") != 0) {
        if (strcmp(r->name, "gpu") != 0)
            simcuda_refuse("NCCL: the graph file %s has a <%s> in a channel of one node", r->path, r->name);
        const long device = number(r, "dev", 16);
        int i = 0;
        while (i < count && devices[i] != device)
            i++;
        if (i == count || seen[i])
            simcuda_refuse("NCCL: channel %ld of the graph file %s has GPU %ld, which %s", channel, r->path, device,
                           i == count ? "is not of the communicator" : "it had before");
        seen[i] = true;
        gpus++;
    }
    if (gpus != count)
        simcuda_refuse("NCCL: channel %ld of the graph file %s has %d GPUs, and the communicator %d", channel, r->path,
                       gpus, count);
}

/* The ring's; up to </graph>. */
static void check_ring(reader *r, const int *devices, int count) {
    const long channels = number(r, "nchannels", 10);
    if (number(r, "pattern", 10) != PATTERN_RING)
        simcuda_refuse("NCCL: graph 0 of %s has another pattern than a ring's, %d", r->path, PATTERN_RING);
    check_speed(r, "speedintra");
    check_speed(r, "speedinter");
    check_path_type(r, "typeintra");
    check_path_type(r, "typeinter");
    number(r, "crossnic", 10);
    number(r, "samechannels", 10);
    long found = 0;
    while (next_tag(r) && strcmp(r->name, "channel") == 0)
        check_channel(r, found++, devices, count);
    if (strcmp(r->name, "/graph") != 0 || found != channels || channels < 1)
        simcuda_refuse("NCCL: graph 0 of %s has %ld channels and says that it has %ld", r->path, found, channels);
}

void graph_check(const char *path, const int *devices, int count) {
    char *text = read_file(path);
    reader r = {.path = path, .at = text};
    if (!next_tag(&r) || strcmp(r.name, "graphs") != 0 || number(&r, "version", 10) != 1)
        simcuda_refuse("NCCL: %s is no graph file of version 1", path);
    bool closed = false;
    while (!closed && next_tag(&r)) {
        if (strcmp(r.name, "graph") == 0 && number(&r, "id", 10) == 0)
            check_ring(&r, devices, count);
        closed = strcmp(r.name, "/graphs") == 0;
    }
    if (!closed)
        simcuda_refuse("NCCL: the graph file %s ends before </graphs>", path);
    free(text);
}
