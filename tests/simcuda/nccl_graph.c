#include "nccl_graph.h"
#include "simcuda.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MOST = 1 << 20, WORD = 64, PATTERN_RING = 4 };

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
static void read_channel(reader *r, const int *devices, int count, graph_rings *rings) {
    const int channel = rings->count;
    bool seen[GRAPH_DEVICES_MOST] = {false};
    int gpus = 0;
    while (next_tag(r) && strcmp(r->name, "/channel") != 0) {
        if (strcmp(r->name, "gpu") != 0)
            simcuda_refuse("NCCL: the graph file %s has a <%s> in a channel of one node", r->path, r->name);
        const long device = number(r, "dev", 16);
        int i = 0;
        while (i < count && devices[i] != device)
            i++;
        if (i == count || seen[i])
            simcuda_refuse("NCCL: channel %d of the graph file %s has GPU %ld, which %s", channel, r->path, device,
                           i == count ? "is not of the communicator" : "it had before");
        seen[i] = true;
        rings->order[channel][gpus++] = (int)device;
    }
    if (gpus != count)
        simcuda_refuse("NCCL: channel %d of the graph file %s has %d GPUs, and the communicator %d", channel, r->path,
                       gpus, count);
    rings->count++;
}

/* The ring's; up to </graph>. */
static void read_rings(reader *r, const int *devices, int count, graph_rings *rings) {
    const long channels = number(r, "nchannels", 10);
    if (number(r, "pattern", 10) != PATTERN_RING)
        simcuda_refuse("NCCL: graph 0 of %s has another pattern than a ring's, %d", r->path, PATTERN_RING);
    check_speed(r, "speedintra");
    check_speed(r, "speedinter");
    check_path_type(r, "typeintra");
    check_path_type(r, "typeinter");
    number(r, "crossnic", 10);
    number(r, "samechannels", 10);
    while (next_tag(r) && strcmp(r->name, "channel") == 0 && rings->count < GRAPH_RINGS_MOST)
        read_channel(r, devices, count, rings);
    if (strcmp(r->name, "/graph") != 0 || rings->count != channels || channels < 1)
        simcuda_refuse("NCCL: graph 0 of %s has %d channels and says that it has %ld", r->path, rings->count, channels);
}

static void read_graphs(const char *path, const int *devices, int count, graph_rings *rings) {
    char *text = read_file(path);
    reader r = {.path = path, .at = text};
    if (!next_tag(&r) || strcmp(r.name, "graphs") != 0 || number(&r, "version", 10) != 1)
        simcuda_refuse("NCCL: %s is no graph file of version 1", path);
    bool closed = false;
    while (!closed && next_tag(&r)) {
        if (strcmp(r.name, "graph") == 0 && number(&r, "id", 10) == 0)
            read_rings(&r, devices, count, rings);
        closed = strcmp(r.name, "/graphs") == 0;
    }
    if (!closed)
        simcuda_refuse("NCCL: the graph file %s ends before </graphs>", path);
    free(text);
}

void graph_read(const char *path, const int *devices, int count, graph_rings *rings) {
    *rings = (graph_rings){.devices = count};
    if (path != NULL)
        read_graphs(path, devices, count, rings);
    if (rings->count > 0)
        return;
    memcpy(rings->order[0], devices, (size_t)count * sizeof *devices);
    rings->count = 1;
}

static void write_channel(const int *order, int count, bool other, FILE *out) {
    const int begin = (int)(simcuda_random() % (uint64_t)count);
    fputs("    <channel>\n", out);
    for (int i = 0; i < count; i++) {
        const int at = (begin + i) % count;
        fprintf(out, "      <gpu dev=\"%x\"/>\n", (unsigned)order[other && at < 2 ? 1 - at : at]);
    }
    fputs("    </channel>\n", out);
}

void graph_write(const char *path, const graph_rings *rings) {
    const char *asked = getenv("SIMCUDA_NCCL_RINGS");
    const bool other = asked != NULL && strcmp(asked, "other") == 0;
    const int sets = 1 + (int)(simcuda_random() % 2);
    FILE *out = fopen(path, "w");
    if (out == NULL)
        simcuda_refuse("NCCL: the graph dump file %s cannot be opened: %s", path, strerror(errno));
    fprintf(out,
            "<graphs version=\"1\">\n"
            "  <graph id=\"0\" pattern=\"%d\" crossnic=\"0\" nchannels=\"%d\" speedintra=\"1\" speedinter=\"1\" "
            "latencyinter=\"0\" typeintra=\"SYS\" typeinter=\"SYS\" samechannels=\"0\">\n",
            PATTERN_RING, sets * rings->count);
    for (int i = 0; i < sets * rings->count; i++)
        write_channel(rings->order[i % rings->count], rings->devices, other && i == rings->count - 1, out);
    fputs("  </graph>\n  <graph id=\"1\" pattern=\"3\" nchannels=\"0\">\n  </graph>\n</graphs>\n", out);
    fclose(out);
}
