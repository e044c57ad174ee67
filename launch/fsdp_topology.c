/* fsdp_topology: how a machine is wired, and the rings that this gives. */
#include "comm/ring_nccl.h"
#include "engine/checked.h"
#include "launch/nearest.h"
#include "launch/topology_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct request {
    const char **files;
    int file_count;
    const char *svg, *nccl, *json;
    int nodes;
    bool help, version;
} request;

enum { NODES_MOST = 100000 };

static void print_help(void) {
    puts("Shows how a machine is wired and which rings through its GPUs carry the most.\n"
         "\n"
         "  fsdp_topology                     this machine\n"
         "  fsdp_topology FILE...             machines from files: hwloc's XML (lstopo FILE.xml) or NCCL's topology "
         "XML\n"
         "                                    (NCCL_TOPO_DUMP_FILE, or a cloud vendor's)\n"
         "  --nodes N                         rings for N machines like it, which enter and leave over network cards\n"
         "  --svg PICTURE                     draws the machine and its rings\n"
         "  --nccl GRAPH                      writes the rings for NCCL_GRAPH_FILE\n"
         "  --json RESULT                     writes {\"gpus\": [...], \"rings\": [{\"order\", \"bandwidth\"}...],\n"
         "                                    \"total\", \"limit\"...}, in GB/s\n"
         "\n"
         "Exit codes: 0 finished, 1 internal fault, 2 usage, a file that cannot be read or written, 5 hwloc fails.");
}

/* ---- the command line ---- */

static bool set_nodes(request *r, const char *text, error *e) {
    char *end = NULL;
    errno = 0;
    const long nodes = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || nodes < 1 || nodes > NODES_MOST)
        return error_set(e, EXIT_USAGE, "argument --nodes %s: takes a whole number, 1 to %d", text, NODES_MOST);
    r->nodes = (int)nodes;
    return true;
}

static bool unknown_option(const char *option, error *e) {
    static const char *const names[] = {"--svg", "--nccl", "--json", "--nodes", "--help", "--version"};
    const char *nearest = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        nearest_consider(option, names[i], &nearest);
    return error_set(e, EXIT_USAGE, "argument %s: unknown option%s%s; see fsdp_topology --help", option,
                     nearest != NULL ? "; did you mean " : "", nearest != NULL ? nearest : "");
}

/* Sets *taken to whether the value was used. */
static bool set_option(request *r, const char *option, const char *value, bool *taken, error *e) {
    const struct {
        const char *name, **path;
    } paths[] = {{"--svg", &r->svg}, {"--nccl", &r->nccl}, {"--json", &r->json}, {"--nodes", NULL}};
    *taken = false;
    if (strcmp(option, "--help") == 0)
        return r->help = true;
    if (strcmp(option, "--version") == 0)
        return r->version = true;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        if (strcmp(option, paths[i].name) != 0)
            continue;
        if (value == NULL || value[0] == '\0')
            return error_set(e, EXIT_USAGE, "argument %s: a value is missing; see fsdp_topology --help", option);
        *taken = true;
        if (paths[i].path == NULL)
            return set_nodes(r, value, e);
        *paths[i].path = value;
        return true;
    }
    return unknown_option(option, e);
}

static bool parse(int count, char **arguments, request *r, error *e) {
    for (int i = 1; i < count; i++) {
        bool taken = false;
        if (arguments[i][0] != '-')
            r->files[r->file_count++] = arguments[i];
        else if (!set_option(r, arguments[i], i + 1 < count ? arguments[i + 1] : NULL, &taken, e))
            return false;
        i += taken;
    }
    if (r->file_count > 1 && (r->svg != NULL || r->nccl != NULL || r->json != NULL))
        return error_set(e, EXIT_USAGE, "--svg, --nccl and --json take one machine; %d files are given", r->file_count);
    return true;
}

/* ---- output files ---- */

typedef struct shown {
    const topology *t;
    const ring_set *set;
    const char *title;
    int nodes;
} shown;

static void write_svg(const shown *s, FILE *out) {
    topology_write_svg(s->t, s->set, s->title, s->nodes, out);
}

static void write_json(const shown *s, FILE *out) {
    topology_write_json(s->t, s->set, s->nodes, out);
}

static void write_nccl(const shown *s, FILE *out) {
    ring_write_nccl(s->t, s->set, out);
}

static bool write_file(const char *path, void (*write)(const shown *s, FILE *out), const shown *s, error *e) {
    if (path == NULL)
        return true;
    FILE *out = fopen(path, "w");
    if (out == NULL)
        return error_set(e, EXIT_USAGE, "%s: cannot write: %s", path, strerror(errno));
    write(s, out);
    const bool failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed)
        return error_set(e, EXIT_USAGE, "%s: cannot write: %s", path, strerror(errno));
    return true;
}

static bool write_files(const request *r, const shown *s, error *e) {
    if (r->nccl != NULL && s->set->channel_count == 0)
        return error_set(e, EXIT_USAGE, "%s: not written: %s has %s, so it has no rings", r->nccl, s->title,
                         s->set->gpus == 0 ? "no GPUs" : "one GPU");
    return write_file(r->svg, write_svg, s, e) && write_file(r->nccl, write_nccl, s, e) &&
           write_file(r->json, write_json, s, e);
}

static bool show(const request *r, const char *path, error *e) {
    topology t;
    ring_set set;
    if (!topology_read(path, &t, e))
        return false;
    const char *title = path != NULL ? path : t.source;
    bool good = ring_find(&t, r->nodes, &set, e);
    if (good) {
        topology_print(&t, title, stdout);
        topology_print_rings(&t, &set, r->nodes, stdout);
        good = write_files(r, &(shown){&t, &set, title, r->nodes}, e);
        ring_free(&set);
    }
    topology_free(&t);
    return good;
}

static bool show_all(const request *r, error *e) {
    if (r->file_count == 0)
        return show(r, NULL, e);
    for (int i = 0; i < r->file_count; i++) {
        if (i > 0)
            fputs("\n\n", stdout);
        if (!show(r, r->files[i], e))
            return false;
    }
    return true;
}

int main(int argc, char **argv) {
    error e = {0};
    request r = {.files = memory_allocate((size_t)argc, sizeof *r.files), .nodes = 1};
    const bool good = parse(argc, argv, &r, &e);
    if (good && r.help)
        print_help();
    else if (good && r.version)
        puts("fsdp_topology " FSDP_VERSION);
    else if (good)
        show_all(&r, &e);
    fflush(stdout);
    if (e.code != 0)
        fprintf(stderr, "fsdp_topology: %s\n", e.message);
    free(r.files);
    return e.code;
}
