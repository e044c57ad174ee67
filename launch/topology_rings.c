#include "launch/topology_rings.h"

#include "comm/ring_nccl.h"
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

/* Nodes over which a group with all ranks of a node reaches; 0: no group has them. */
static int nodes_of_groups(const config *c, const world *w) {
    if (c->shard.group == 1)
        return w->nodes;
    return c->shard.group % w->local_size == 0 ? (int)c->shard.group / w->local_size : 0;
}

static bool check_gpus(const config *c, const world *w, const topology *t, error *e) {
    const int gpus = topology_count(t, TOPOLOGY_GPU);
    if (gpus == w->local_size)
        return true;
    return config_refuse(c, &c->shard.ring, e,
                         "%d ranks on host %s, and %s has %d GPU%s; start one rank for each, or use ring = nccl",
                         w->local_size, w->host, c->device.topology != NULL ? c->device.topology : "this machine", gpus,
                         gpus == 1 ? "" : "s");
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

static bool find(const config *c, const world *w, rings *found, error *e) {
    topology t;
    ring_set set;
    if (!topology_read(c->device.topology, &t, e))
        return false;
    bool good = check_gpus(c, w, &t, e) && ring_find(&t, found->graph.nodes, &set, e);
    if (good) {
        good = write_graph(&t, &set, found, e);
        describe(&t, &set, w, found);
        found->gpu = t.nodes[set.channels[0].order[w->local_rank]].number;
        ring_free(&set);
    }
    topology_free(&t);
    return good;
}

bool rings_find(const config *c, world *w, rings *found, error *e) {
    *found = (rings){.gpu = w->local_rank};
    if (c->shard.ring != CONFIG_RING_HWLOC || !on_gpus(c))
        return true;
    found->graph.nodes = nodes_of_groups(c, w);
    if (found->graph.nodes == 0)
        found->text =
            memory_format("NCCL's own: groups of %lld ranks are not those of whole nodes", (long long)c->shard.group);
    else if (w->local_size > 1)
        find(c, w, found, e);
    return world_agree(w, e);
}

void rings_release(rings *r) {
    if (r->graph.path != NULL)
        unlink(r->graph.path);
    free((char *)(uintptr_t)r->graph.path);
    free(r->text);
    *r = (rings){0};
}
