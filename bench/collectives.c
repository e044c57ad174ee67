/* Collectives through the window, as messages and by NCCL over sizes: mpirun -np N bench_collectives. Over several
 * nodes there is no window.
 *
 * usage: bench_collectives [--topology FILE] [--largest KILOBYTES] [--turns N]
 *
 * Bandwidths are those of nccl-tests. Of the algorithm: bytes of the whole buffer, all ranks' parts, in the time of one
 * collective. Of the bus: times (n - 1) / n for n ranks, what crosses the links of each, which does not depend on n
 * where links are the limit.
 *
 * Between GPUs rings predict it: what the links, of this machine or of FILE, let them carry together (comm/ring.h), and
 * the share of that stands beside it. NCCL is measured with the rings that it finds by itself and with those. In a
 * process's memory memcpy tells: an all_gather of S bytes per rank copies S from every rank, its own included, a
 * reduce_scatter reads S from every rank, and memcpy moves as many bytes between private buffers that are in memory
 * already.
 *
 * All ranks do the same at once, a few times in a row as the units of a model follow each other, and the job's time
 * counts: from the first rank's start to the last one's end or, on GPUs' clocks, the longest. The best of several turns
 * of each kind, taken in turn, so that ratios of one run compare. */
#include "comm/collectives.h"
#include "comm/patience.h"
#include "comm/ring.h"
#include "comm/ring_nccl.h"
#include "engine/checked.h"
#include "engine/device/clear.h"
#include "engine/device/module.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct size {
    int64_t kilobytes; /* of one rank's part */
    int32_t in_a_row;
    int turns;
} size;

static const size SIZES[] = {{64, 64, 40}, {1024, 32, 40}, {16 << 10, 8, 20}, {256 << 10, 2, 7}};

typedef struct options {
    const char *topology; /* NULL: this machine's */
    int64_t largest;      /* kilobytes */
    int turns;            /* at most */
} options;

/* By whom collectives are moved: a row of the table for each size. */
typedef struct way {
    const char *name;
    const collective_backend *backend;
    device *device;
    transport transport;
    ring_graph graph;
    double limit; /* GB/s on the bus that rings let it have; 0: nobody knows */
} way;

typedef struct bench {
    world *w;
    const way *how;
    size_t part;      /* bytes */
    int32_t in_a_row; /* collectives of each kind: all_gathers first, then reduce_scatters */
    collectives *collectives;
    device_memory memory;
    char *from, *to; /* of memcpy: a part from every rank */
    error *error;
} bench;

/* ---- collectives ---- */

/* All work on one input and one output. The host sums in the order of ranks, NCCL in its own. */
static collective *list_all(const bench *b) {
    static const operation_kind kinds[] = {OPERATION_ALL_GATHER, OPERATION_REDUCE_SCATTER};
    collective *list = memory_allocate((size_t)b->in_a_row * 2, sizeof *list);
    for (int32_t i = 0; i < 2 * b->in_a_row; i++)
        list[i] = (collective){.kind = kinds[i / b->in_a_row],
                               .stream = STREAM_GATHER,
                               .group_stride = 1,
                               .group_size = b->w->size,
                               .odd = b->how->device->functions->queues ? 0 : b->w->size,
                               .count = (int64_t)(b->part / sizeof(float)),
                               .output = (int64_t)b->part * b->w->size,
                               .event = i,
                               .name = "collective"};
    return list;
}

/* Input, output, workspace. */
static bool open_all(bench *b) {
    device *d = b->how->device;
    const int64_t moved = (int64_t)b->part * b->w->size;
    const int32_t count = 2 * b->in_a_row;
    collective *list = list_all(b);
    const int64_t workspace = b->how->backend->workspace(b->w, list, count, b->how->transport);
    bool good = d->functions->allocate(d, (size_t)(2 * moved + workspace), &b->memory, b->error) &&
                (!d->functions->queues || d->functions->reserve(d, count, 2, b->error));
    good = world_agree(b->w, b->error) && good;
    if (good) {
        device_clear(d, &b->memory, b->memory.bytes);
        if (d->functions->enlarge_pages != NULL)
            d->functions->enlarge_pages(d, &b->memory);
        const collectives_settings settings = {.device = d,
                                               .arena = &b->memory,
                                               .workspace = 2 * moved,
                                               .transport = b->how->transport,
                                               .timeout = 60,
                                               .graph = b->how->graph};
        good = b->how->backend->open(b->w, &settings, list, count, &b->collectives, b->error);
    }
    free(list);
    return good;
}

static void run_collectives(bench *b, int32_t first) {
    for (int32_t i = first; i < first + b->in_a_row; i++) {
        collectives_issue(b->collectives, i);
        collectives_complete(b->collectives, i, STREAM_GATHER, b->error);
    }
}

static void gather(bench *b) {
    run_collectives(b, 0);
}

static void reduce(bench *b) {
    run_collectives(b, b->in_a_row);
}

static void copy(bench *b) {
    for (int32_t i = 0; i < b->in_a_row; i++)
        memcpy(b->to, b->from, b->part * (size_t)b->w->size);
}

/* ---- times ---- */

/* Seconds from the first rank's start to the last one's end. */
static double time_on_host(bench *b, void (*act)(bench *)) {
    world_barrier(b->w);
    const double begun = patience_clock();
    act(b);
    const double ended = patience_clock();
    return world_maximum(b->w, ended) + world_maximum(b->w, -begun);
}

/* Of the rank whose device takes longest. */
static double time_on_device(bench *b, void (*act)(bench *)) {
    device *d = b->how->device;
    world_barrier(b->w);
    d->functions->stamp(d, STREAM_GATHER, 0);
    act(b);
    d->functions->stamp(d, STREAM_GATHER, 1);
    d->functions->synchronize(d, b->error);
    return world_maximum(b->w, d->functions->elapsed(d, 0, 1));
}

/* Seconds of one, where that is less than `best`. */
static double better(bench *b, double best, void (*act)(bench *)) {
    const bool queued = b->how->device->functions->queues;
    const double seconds = (queued ? time_on_device : time_on_host)(b, act) / b->in_a_row;
    return seconds < best ? seconds : best;
}

/* ---- the table ---- */

static void print_heading(void) {
    printf("GB/s                 %8s  %8s   %-41s   %s\n", "", "", "all_gather", "reduce_scatter");
    printf("%-19s  %8s  %8s", "", "KB/rank", "memcpy");
    for (int kind = 0; kind < 2; kind++)
        printf("   %9s  %8s  %8s  %8s", "algorithm", "bus", "/ memcpy", "/ rings");
    putchar('\n');
}

/* In the place of what is not known: a dash. */
static void print_ratio(double ratio) {
    if (ratio > 0)
        printf("  %8.2f", ratio);
    else
        printf("  %8s", "-");
}

static void print_rates(const bench *b, double seconds, double copying) {
    const int ranks = b->w->size;
    const double algorithm = (double)b->part * ranks / seconds * 1e-9, bus = algorithm * (ranks - 1) / ranks;
    printf("   %9.2f  %8.2f", algorithm, bus);
    print_ratio(copying / seconds);
    print_ratio(b->how->limit > 0 ? bus / b->how->limit : 0);
}

static void measure(bench *b, int turns) {
    const bool copies = !b->how->device->functions->queues; /* what memcpy would move is where it can reach it */
    double gathering = 1e9, reducing = 1e9, copying = copies ? 1e9 : 0;
    for (int i = 0; i < turns && b->error->code == 0; i++) {
        gathering = better(b, gathering, gather);
        reducing = better(b, reducing, reduce);
        collectives_finish(b->collectives, b->error);
        if (copies)
            copying = better(b, copying, copy);
    }
    if (b->w->rank != 0 || b->error->code != 0)
        return;
    printf("%-19s  %8zu", b->how->name, b->part >> 10);
    print_ratio(copies ? (double)b->part * b->w->size / copying * 1e-9 : 0);
    print_rates(b, gathering, copying);
    print_rates(b, reducing, copying);
    putchar('\n');
    fflush(stdout);
}

static bool measure_size(world *w, const way *how, const size *s, int turns, error *e) {
    bench b = {.w = w, .how = how, .part = (size_t)s->kilobytes << 10, .in_a_row = s->in_a_row, .error = e};
    const size_t moved = b.part * (size_t)w->size;
    b.from = memory_allocate(moved, 1);
    b.to = memory_allocate(moved, 1);
    memset(b.from, 1, moved);
    memset(b.to, 1, moved);
    if (open_all(&b)) {
        measure(&b, turns < s->turns ? turns : s->turns);
        collectives_close(b.collectives);
    }
    world_barrier(w);
    free(b.from);
    free(b.to);
    if (b.memory.base != NULL)
        how->device->functions->release(how->device, &b.memory);
    return e->code == 0;
}

static bool measure_way(world *w, const way *how, const options *o, error *e) {
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++)
        if (SIZES[i].kilobytes <= o->largest && !measure_size(w, how, &SIZES[i], o->turns, e))
            return false;
    return true;
}

static bool measure_host(world *w, const options *o, error *e) {
    const device_settings settings = {.threads = 1};
    way window = {.name = "window", .backend = &collectives_host, .transport = TRANSPORT_WINDOW};
    way messages = {.name = "messages", .backend = &collectives_host, .transport = TRANSPORT_MESSAGES};
    if (!device_cpu.open(&settings, &window.device, e))
        return false;
    messages.device = window.device;
    const bool good = (w->nodes > 1 || measure_way(w, &window, o, e)) && measure_way(w, &messages, o, e);
    device_cpu.close(window.device);
    return good;
}

/* ---- GPUs ---- */

/* What the machine's wiring gives. */
typedef struct wiring {
    double limit; /* GB/s on the bus; 0: no rings */
    char *file;   /* with the rings, for NCCL; NULL: none */
    int gpu;      /* of this rank */
} wiring;

static wiring without_rings(const world *w) {
    return (wiring){.gpu = w->local_rank};
}

static void remove_rings(wiring *found) {
    if (found->file != NULL)
        unlink(found->file);
    free(found->file);
    found->file = NULL;
}

static bool write_rings(const topology *t, const ring_set *set, wiring *found, error *e) {
    const char *folder = getenv("TMPDIR");
    char *path = memory_format("%s/bench_collectives.rings.XXXXXX", folder != NULL ? folder : "/tmp");
    const int file = mkstemp(path);
    if (file < 0) {
        error_set(e, EXIT_LAUNCH, "%s: cannot write: %s", path, strerror(errno));
        free(path);
        return false;
    }
    found->file = path;
    FILE *out = fdopen(file, "w");
    if (out != NULL)
        ring_write_nccl(t, set, out);
    else
        close(file);
    return (out != NULL && fclose(out) == 0) ||
           error_set(e, EXIT_LAUNCH, "%s: cannot write: %s", path, strerror(errno));
}

static bool find_rings(const world *w, const topology *t, wiring *found, error *e) {
    ring_set set;
    const int gpus = topology_count(t, TOPOLOGY_GPU);
    if (gpus != w->local_size)
        return error_set(e, EXIT_USAGE, "the topology has %d GPU%s, and there are %d ranks", gpus, gpus == 1 ? "" : "s",
                         w->local_size);
    if (!ring_find(t, w->nodes, &set, e))
        return false;
    const bool good =
        set.channel_count > 0 ? write_rings(t, &set, found, e) : error_set(e, EXIT_USAGE, "the topology has one GPU");
    if (good) {
        found->limit = set.total;
        found->gpu = t->nodes[set.channels[0].order[w->local_rank]].number;
    }
    ring_free(&set);
    return good;
}

static void say(const world *w, const char *words, const char *reason) {
    if (w->rank == 0)
        printf("%s%s\n", words, reason);
}

static bool look_at_wiring(world *w, const char *path, wiring *found, error *e) {
    topology t = {0};
    error why = {0};
    *found = without_rings(w);
    topology_read(path, &t, e);
    if (!world_agree(w, e))
        return false;
    find_rings(w, &t, found, &why);
    topology_free(&t);
    if (!world_agree_and_go_on(w, &why)) {
        remove_rings(found);
        *found = without_rings(w);
        say(w, "rings predict nothing: ", why.message);
    } else if (w->rank == 0) {
        printf("rings: the links let them carry %.5g GB/s on the bus\n", found->limit);
    }
    return true;
}

static bool measure_nccl(world *w, const device_module *module, const options *o, const wiring *found, error *e) {
    const device_settings settings = {.threads = 1, .number = found->gpu};
    way own = {.name = "NCCL", .backend = &collectives_queued, .limit = found->limit};
    module->device->open(&settings, &own.device, e);
    if (!world_agree(w, e))
        return false;
    own.device->communication = module->communication;
    way given = own;
    given.name = "NCCL, rings given";
    given.graph = (ring_graph){.files = {.given = found->file}, .nodes = w->nodes};
    const bool good = measure_way(w, &own, o, e) && (found->limit == 0 || measure_way(w, &given, o, e));
    own.device->functions->close(own.device);
    return good;
}

static bool measure_gpus(world *w, const options *o, error *e) {
    const device_module *module = NULL;
    wiring found;
    error why = {0};
    if (device_module_load(&module, &why) && !module->simulated && !device_module_driver())
        error_set(&why, EXIT_LAUNCH, "this machine has no NVIDIA driver");
    if (!world_agree_and_go_on(w, &why)) {
        say(w, "NCCL is not measured, and rings predict nothing between CPUs: ", why.message);
        return true;
    }
    if (!look_at_wiring(w, o->topology, &found, e))
        return false;
    if (module->simulated)
        say(w, "NCCL is simulated on the host: its rates mean nothing", "");
    const bool good = measure_nccl(w, module, o, &found, e);
    remove_rings(&found);
    return good;
}

/* ---- the command line ---- */

static bool parse(int count, char **arguments, options *o, error *e) {
    *o = (options){.largest = INT64_MAX, .turns = INT32_MAX};
    for (int i = 1; i < count; i += 2) {
        const char *value = i + 1 < count ? arguments[i + 1] : "";
        const long number = strtol(value, NULL, 10);
        if (strcmp(arguments[i], "--topology") == 0 && value[0] != '\0')
            o->topology = value;
        else if (strcmp(arguments[i], "--largest") == 0 && number >= SIZES[0].kilobytes)
            o->largest = number;
        else if (strcmp(arguments[i], "--turns") == 0 && number > 0)
            o->turns = (int)minimum(number, INT32_MAX);
        else
            return error_set(e, EXIT_USAGE,
                             "argument %s: takes --topology FILE, --largest KILOBYTES of 64 or more, --turns N",
                             arguments[i]);
    }
    return true;
}

int main(int argc, char **argv) {
    world w;
    error e = {0};
    options o = {0};
    bool good = world_open(&w, &argc, &argv, &e) && parse(argc, argv, &o, &e);
    if (good && w.size < 2)
        good = error_set(&e, EXIT_USAGE, "start it with mpirun -np 2 or more");
    if (good && w.rank == 0)
        print_heading();
    if (good)
        good = measure_host(&w, &o, &e) && measure_gpus(&w, &o, &e);
    if (!world_agree(&w, &e) && world_speaks(&w))
        fprintf(stderr, "bench_collectives: %s\n", e.message);
    world_close(&w);
    return e.code;
}
