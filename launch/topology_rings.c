#include "launch/topology_rings.h"

#include "comm/ring_dump.h"
#include "comm/ring_nccl.h"
#include "comm/ring_trial.h"
#include "engine/checked.h"
#include "engine/device/module.h"
#include "launch/topology_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DUMP_VARIABLE "NCCL_GRAPH_DUMP_FILE"

static bool on_gpus(const config *c) {
    return c->device.kind == CONFIG_DEVICE_CUDA || (c->device.kind == CONFIG_DEVICE_AUTO && device_module_driver());
}

/* Ranks that exchange a model's units: those of a shard group or, where nothing is sharded, all. */
static int group_size_of(const config *c, const world *w) {
    return c->shard.group == 1 ? w->size : (int)c->shard.group;
}

/* Nodes over which such groups reach, each with all of its ranks; 0: they do not. */
static int nodes_of_groups(const config *c, const world *w) {
    const int size = group_size_of(c, w);
    int *ranks = memory_allocate((size_t)w->nodes, sizeof *ranks),
        *group = memory_allocate((size_t)w->nodes, sizeof *group);
    bool whole = size % w->local_size == 0;
    for (int r = 0; r < w->size; r++) {
        const int node = w->node_of[r];
        whole = whole && (ranks[node] == 0 || group[node] == r / size);
        group[node] = r / size;
        ranks[node]++;
    }
    for (int node = 0; node < w->nodes; node++)
        whole = whole && ranks[node] == w->local_size;
    free(ranks);
    free(group);
    return whole ? size / w->local_size : 0;
}

static bool check_gpus(const config *c, const world *w, const topology *t, error *e) {
    const int gpus = topology_count(t, TOPOLOGY_GPU);
    if (gpus == w->local_size)
        return true;
    char *found =
        memory_format("%d ranks on host %s, and %s has %d GPU%s", w->local_size, w->host,
                      c->device.topology != NULL ? c->device.topology : "this machine", gpus, gpus == 1 ? "" : "s");
    if (c->shard.ring == CONFIG_RING_AUTO)
        error_set(e, EXIT_USAGE, "%s", found);
    else
        config_refuse(c, &c->shard.ring, e, "%s; start one rank for each, or use ring = nccl", found);
    free(found);
    return false;
}

/* ---- files ---- */

/* Every rank its own: a node's ranks need not share a folder for temporary files. NULL: it cannot be made. */
static FILE *create_file(char **path, error *e) {
    const char *folder = getenv("TMPDIR");
    *path = memory_format("%s/fsdp_train.rings.XXXXXX", folder != NULL && folder[0] != '\0' ? folder : "/tmp");
    const int file = mkstemp(*path);
    FILE *out = file >= 0 ? fdopen(file, "w") : NULL;
    if (out != NULL)
        return out;
    error_set_own(e, EXIT_LAUNCH, "%s: cannot write: %s", *path, strerror(errno));
    if (file >= 0) {
        close(file);
        unlink(*path);
    }
    free(*path);
    *path = NULL;
    return NULL;
}

static void remove_file(char **path) {
    if (*path != NULL)
        unlink(*path);
    free(*path);
    *path = NULL;
}

static void remove_files(rings *r) {
    remove_file(&r->given);
    remove_file(&r->used);
    r->graph.files = (ring_files){0};
}

static bool write_given(const topology *t, const ring_set *set, rings *found, error *e) {
    FILE *out = create_file(&found->given, e);
    if (out == NULL)
        return false;
    ring_write_nccl(t, set, out);
    const bool failed = ferror(out) != 0;
    return (fclose(out) == 0 && !failed) ||
           error_set_own(e, EXIT_LAUNCH, "%s: cannot write: %s", found->given, strerror(errno));
}

static bool make_files(const topology *t, const ring_set *set, rings *found, error *e) {
    FILE *used = write_given(t, set, found, e) ? create_file(&found->used, e) : NULL;
    if (used == NULL) {
        remove_files(found);
        return false;
    }
    fclose(used);
    found->graph.files = (ring_files){.given = found->given, .used = found->used};
    return true;
}

static bool copy(const char *from, const char *to) {
    FILE *in = fopen(from, "r"), *out = in != NULL ? fopen(to, "w") : NULL;
    bool good = out != NULL;
    for (int c; good && (c = getc(in)) != EOF;)
        good = putc(c, out) != EOF;
    good = good && ferror(in) == 0;
    if (in != NULL)
        fclose(in);
    return (out == NULL || fclose(out) == 0) && good;
}

/* A user may have told NCCL to write somewhere. */
static bool copy_for_user(const char *dump, error *e) {
    const char *users = getenv(DUMP_VARIABLE);
    return users == NULL || copy(dump, users) ||
           error_set_own(e, EXIT_LAUNCH, DUMP_VARIABLE " = %s: cannot write: %s", users, strerror(errno));
}

/* ---- finding them ---- */

static void describe(const topology *t, const ring_set *set, const world *w, rings *found) {
    char total[TOPOLOGY_NUMBER], bound[TOPOLOGY_NUMBER], speed[TOPOLOGY_NUMBER], *gpus = memory_copy_string("");
    for (int i = 0; i < w->local_size; i++) {
        char *longer = memory_format("%s %d", gpus, t->nodes[set->channels[0].order[i]].number);
        free(gpus);
        gpus = longer;
    }
    found->text = memory_format("%d of %s GB/s (of %s; no more than %s is possible), GPUs by local rank:%s",
                                set->channel_count, topology_number(set->channel_speed, speed),
                                topology_number(set->total, total), topology_number(set->bound, bound), gpus);
    free(gpus);
}

static bool find(const config *c, const world *w, const topology *t, rings *found, error *e) {
    ring_set set;
    if (!check_gpus(c, w, t, e) || !ring_find(t, found->graph.nodes, &set, e))
        return false;
    const bool good = make_files(t, &set, found, e);
    if (good) {
        describe(t, &set, w, found);
        found->gpu = t->nodes[set.channels[0].order[w->local_rank]].number;
    }
    ring_free(&set);
    return good;
}

static void say(rings *r, char *text) {
    free(r->text);
    r->text = text;
}

/* Behind the plan, and freed. */
static void print(const world *w, char *text) {
    if (w->rank == 0)
        printf("rings        %s\n", text);
    free(text);
}

static void leave_to_nccl(rings *r, const char *why) {
    remove_files(r);
    say(r, memory_format("NCCL's own: %s", why));
}

/* What keeps ring = hwloc from starting sends ring = auto back to NCCL. */
static bool find_or_leave(const config *c, world *w, const topology *t, rings *found, error *e) {
    error why = {0};
    find(c, w, t, found, &why);
    if (c->shard.ring == CONFIG_RING_HWLOC) {
        *e = why;
        return world_agree(w, e);
    }
    found->doubted = world_agree_and_go_on(w, &why);
    if (!found->doubted) {
        found->gpu = w->local_rank;
        leave_to_nccl(found, why.message);
    }
    return true;
}

bool rings_find(const config *c, world *w, rings *found, error *e) {
    *found = (rings){.gpu = w->local_rank};
    topology t = {0};
    if (c->shard.ring == CONFIG_RING_NCCL)
        return true;
    if (!on_gpus(c)) {
        say(found, memory_copy_string("none between CPUs: ranks read each other's memory or send messages"));
        return true;
    }
    found->graph.nodes = nodes_of_groups(c, w);
    if (found->graph.nodes == 0) {
        char *why = memory_format("groups of %d ranks are not those of whole nodes", group_size_of(c, w));
        leave_to_nccl(found, why);
        free(why);
    }
    if (found->graph.nodes == 0 || w->local_size == 1)
        return true;
    topology_read(c->device.topology, &t, e);
    const bool good = world_agree(w, e) && find_or_leave(c, w, &t, found, e);
    topology_free(&t);
    return good;
}

/* ---- which are better ---- */

/* Bytes of the gathered parameters of the unit in the middle, which is a block. */
static int64_t typical_bytes(const plan *p) {
    const flat_unit *unit = &p->layout->units[p->layout->unit_count / 2];
    return minimum(p->arena_bytes, must_multiply(unit->whole, dtype_bytes(p->precision.storage)));
}

bool rings_choose(rings *r, const plan *p, world *w, device *d, const device_memory *arena, double timeout, error *e) {
    ring_trial t;
    if (r->given != NULL && d->communication == NULL) {
        print(w, memory_copy_string("not used: these ranks exchange through the host's memory, without NCCL"));
        remove_files(r);
        r->doubted = false;
    }
    if (!r->doubted)
        return true;
    const collectives_settings settings = {.device = d, .arena = arena, .timeout = timeout, .graph = r->graph};
    if (!ring_trial_measure(w, &settings, r->graph.nodes * w->local_size, typical_bytes(p), &t, e))
        return false;
    const bool keeps = t.given < t.own;
    print(w,
          memory_format("measured: %.4g GB/s, NCCL's own %.4g GB/s on the bus (%.4g MB gathered and reduced, best of "
                        "%d turns each); %s are kept",
                        ring_trial_bandwidth(&t, t.given), ring_trial_bandwidth(&t, t.own), (double)t.bytes / 1e6,
                        t.repeats, keeps ? "these" : "NCCL's own"));
    r->doubted = false;
    if (!keeps)
        remove_files(r);
    return true;
}

/* ---- which NCCL uses ---- */

/* What a rank has found out. Only the rank that NCCL has write knows something. */
typedef struct finding {
    bool knows, differs;
    int count; /* of the rings given */
    char text[400];
} finding;

static finding look_at_dump(const rings *r) {
    finding mine;
    error e = {0};
    char *difference = NULL;
    struct stat dump;
    memset(&mine, 0, sizeof mine);
    mine.knows = stat(r->graph.files.used, &dump) == 0 && dump.st_size > 0;
    if (!mine.knows)
        return mine;
    if (!ring_dump_compare(r->graph.files.given, r->graph.files.used, &mine.count, &difference, &e))
        difference = memory_copy_string(e.message);
    mine.differs = difference != NULL;
    snprintf(mine.text, sizeof mine.text, "%s", mine.differs ? difference : "");
    free(difference);
    return mine;
}

/* The first that differs, else the first that knows; NULL: nobody knows. */
static const finding *pick(const finding *all, int ranks) {
    const finding *picked = NULL;
    for (int r = 0; r < ranks; r++)
        if (all[r].knows && (picked == NULL || (all[r].differs && !picked->differs)))
            picked = &all[r];
    return picked;
}

void rings_compare(rings *r, world *w, char **warning) {
    error e = {0};
    *warning = NULL;
    if (world_maximum(w, r->graph.files.given != NULL) == 0)
        return;
    const finding mine = look_at_dump(r);
    finding *all = memory_allocate((size_t)w->size, sizeof *all);
    world_all_gather(w, &mine, sizeof mine, all);
    const finding *found = pick(all, w->size);
    if (found == NULL)
        *warning = memory_format("NCCL has not written (" DUMP_VARIABLE ") whether it uses the rings given");
    else if (found->differs)
        *warning = memory_format("NCCL does not use the rings given: %s", found->text);
    else
        print(w, memory_format("NCCL uses the %d ring%s given", found->count, found->count == 1 ? "" : "s"));
    free(all);
    if (mine.knows)
        copy_for_user(r->used, &e);
    if (!world_agree_and_go_on(w, &e) && *warning == NULL)
        *warning = memory_copy_string(e.message);
}

void rings_release(rings *r) {
    remove_files(r);
    free(r->text);
    *r = (rings){0};
}
