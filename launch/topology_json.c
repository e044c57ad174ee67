#include "launch/topology_text.h"

#include <jansson.h>
#include <stdlib.h>

static json_t *link_object(const topology *t, int link) {
    char from[TOPOLOGY_TITLE], to[TOPOLOGY_TITLE];
    return json_pack("{s:s, s:s, s:f}", "from", topology_title(t, t->links[link].from, from), "to",
                     topology_title(t, t->links[link].to, to), "bandwidth", t->links[link].bandwidth);
}

static json_t *ring_object(const topology *t, const ring *r, int gpus) {
    json_t *order = json_array();
    for (int i = 0; i < gpus; i++)
        json_array_append_new(order, json_integer(t->nodes[r->order[i]].number));
    json_t *object =
        json_pack("{s:o, s:f, s:o}", "order", order, "bandwidth", r->bandwidth, "slowest", link_object(t, r->slowest));
    if (r->card >= 0)
        json_object_set_new(object, "card", json_string(t->nodes[r->card].name));
    return object;
}

static json_t *limit_array(const topology *t, const ring_set *set) {
    json_t *array = json_array();
    int *links;
    const int count = set->count > 0 ? topology_limits(t, set, &links) : 0;
    for (int i = 0; i < count; i++) {
        json_t *link = link_object(t, links[i]);
        json_object_set_new(link, "weight", json_real(set->price[links[i]]));
        json_array_append_new(array, link);
    }
    if (set->count > 0)
        free(links);
    return array;
}

/* Device numbers, ascending. */
static json_t *gpu_array(const topology *t) {
    json_t *array = json_array();
    int last = -1, next = 0;
    while (next >= 0) {
        next = -1;
        for (int n = 0; n < t->node_count; n++)
            if (t->nodes[n].kind == TOPOLOGY_GPU && t->nodes[n].number > last &&
                (next < 0 || t->nodes[n].number < next))
                next = t->nodes[n].number;
        if (next >= 0)
            json_array_append_new(array, json_integer(last = next));
    }
    return array;
}

void topology_write_json(const topology *t, const ring_set *set, int nodes, FILE *out) {
    json_t *gpus = gpu_array(t), *rings = json_array();
    for (int i = 0; i < set->count; i++)
        json_array_append_new(rings, ring_object(t, &set->rings[i], set->gpus));
    json_t *root = json_pack("{s:o, s:o, s:f, s:f, s:o, s:{s:f, s:f}, s:{s:i, s:f}, s:i}", "gpus", gpus, "rings", rings,
                             "total", set->total, "limit", set->bound, "limit_links", limit_array(t, set), "predicted",
                             "all_gather", set->total, "reduce_scatter", set->total, "channels", "count",
                             set->channel_count, "speed", set->channel_speed, "nodes", nodes);
    json_dumpf(root, out, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
    fputc('\n', out);
    json_decref(root);
}
