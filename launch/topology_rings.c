#include "launch/topology_rings.h"

#include "comm/ring_nccl.h"
#include "comm/ring_trial.h"
#include "engine/checked.h"
#include "engine/device/module.h"
#include "launch/topology_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* Every rank its own file: a node's ranks need not share a folder for temporary files. */
static bool write_graph(const topology *t, const ring_set *set, rings *found, error *e) {
    const char *folder = getenv("TMPDIR");
    char *path = memory_format("%s/fsdp_train.rings.XXXXXX", folder != NULL && folder[0] != '\0' ? folder : "/tmp");
    const int file = mkstemp(path);
    FILE *out = file >= 0 ? fdopen(file, "w") : NULL;
    bool good = out != NULL;
    if (good) {
        ring_write_nccl(t, set, out);
        good = ferror(out) == 0;
        good = fclose(out) == 0 && good;
    }
    if (good) {
        found->graph.path = path;
        return true;
    }
    error_set_own(e, EXIT_LAUNCH, "%s: cannot write: %s", path, strerror(errno));
    if (file >= 0)
        unlink(path);
    free(path);
    return false;
}

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
    const bool good = write_graph(t, &set, found, e);
    if (good) {
        describe(t, &set, w, found);
        found->gpu = t->nodes[set.channels[0].order[w->local_rank]].number;
    }
    ring_free(&set);
    return good;
}

static void drop_file(rings *r) {
    if (r->graph.path != NULL)
        unlink(r->graph.path);
    free((char *)(uintptr_t)r->graph.path);
    r->graph.path = NULL;
}

static void say(rings *r, char *text) {
    free(r->text);
    r->text = text;
}

static void leave_to_nccl(rings *r, const char *why) {
    drop_file(r);
    r->doubted = false;
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
    if (!r->doubted)
        return true;
    if (d->communication == NULL) {
        leave_to_nccl(r, "ranks share a GPU");
        return true;
    }
    const collectives_settings settings = {.device = d, .arena = arena, .timeout = timeout, .graph = r->graph};
    if (!ring_trial_measure(w, &settings, r->graph.nodes * w->local_size, typical_bytes(p), &t, e))
        return false;
    const bool keeps = t.given < t.own;
    say(r, memory_format("measured: %.4g GB/s, NCCL's own %.4g GB/s on the bus (%.4g MB gathered and reduced, best of "
                         "%d turns each); %s are kept",
                         ring_trial_bandwidth(&t, t.given), ring_trial_bandwidth(&t, t.own), (double)t.bytes / 1e6,
                         t.repeats, keeps ? "these" : "NCCL's own"));
    r->doubted = false;
    if (!keeps)
        drop_file(r);
    return true;
}

void rings_release(rings *r) {
    drop_file(r);
    free(r->text);
    *r = (rings){0};
}
