#include "comm/ring_dump.h"

#include "comm/ring.h"
#include "comm/topology_xml.h"
#include "engine/checked.h"

#include <stdlib.h>
#include <string.h>

typedef struct channel {
    int gpus[RING_GPUS_MOST]; /* device numbers, in the ring's order */
    int count;
    bool leaves; /* the node, so that it has a first and a last GPU */
} channel;

typedef struct channels {
    channel *list; /* growing */
    int count;
} channels;

/* ---- reading ---- */

static const xml_element *ring_graph_of(const xml_element *root) {
    for (const xml_element *g = root->first; g != NULL; g = g->next) {
        const char *id = xml_attribute(g, "id");
        if (strcmp(g->name, "graph") == 0 && id != NULL && strcmp(id, "0") == 0)
            return g;
    }
    return NULL;
}

/* Newer versions of NCCL number GPUs across systems, with the system in the upper bits. */
static const unsigned long long NUMBER_IN_SYSTEM = (1ull << 56) - 1;

static bool read_gpu(const char *path, const xml_element *gpu, int base, channel *c, error *e) {
    const char *text = xml_attribute(gpu, "dev");
    char *end = NULL;
    const unsigned long long device = text != NULL ? strtoull(text, &end, base) & NUMBER_IN_SYSTEM : 0;
    if (text == NULL || end == text || *end != '\0' || device > 0xffff)
        return error_set(e, EXIT_LAUNCH, "%s:%ld: a GPU without a device number", path, gpu->line);
    if (c->count == RING_GPUS_MOST)
        return error_set(e, EXIT_LAUNCH, "%s:%ld: a ring of more than %d GPUs", path, gpu->line, RING_GPUS_MOST);
    c->gpus[c->count++] = (int)device;
    return true;
}

static bool read_channel(const char *path, const xml_element *from, int base, channels *to, error *e) {
    to->list = memory_grow(to->list, (size_t)to->count + 1, sizeof *to->list);
    channel *c = &to->list[to->count++];
    *c = (channel){0};
    for (const xml_element *at = from->first; at != NULL; at = at->next) {
        c->leaves = c->leaves || strcmp(at->name, "net") == 0;
        if (strcmp(at->name, "gpu") == 0 && !read_gpu(path, at, base, c, e))
            return false;
    }
    return true;
}

static bool read_channels(const char *path, int base, channels *to, error *e) {
    xml_element *root = xml_read(path, e);
    if (root == NULL)
        return false;
    const xml_element *graph = ring_graph_of(root);
    bool good = graph != NULL || error_set(e, EXIT_LAUNCH, "%s: has no graph of rings", path);
    for (const xml_element *c = good ? graph->first : NULL; c != NULL && good; c = c->next)
        if (strcmp(c->name, "channel") == 0)
            good = read_channel(path, c, base, to, e);
    xml_free(root);
    return good;
}

/* ---- comparing ---- */

static bool same_from(const channel *a, const channel *b, int begin) {
    for (int i = 0; i < a->count; i++)
        if (a->gpus[i] != b->gpus[(begin + i) % b->count])
            return false;
    return true;
}

static bool same_ring(const channel *a, const channel *b) {
    if (a->count != b->count || a->leaves != b->leaves)
        return false;
    for (int begin = 0; begin < (a->leaves ? 1 : b->count); begin++)
        if (same_from(a, b, begin))
            return true;
    return false;
}

static char *gpus_text(const channel *c) {
    char *text = memory_copy_string(c->leaves ? "a card, GPUs" : "GPUs");
    for (int i = 0; i < c->count; i++) {
        char *longer = memory_format("%s %d", text, c->gpus[i]);
        free(text);
        text = longer;
    }
    return text;
}

static char *describe_difference(int ring, const channel *given, const channel *used) {
    char *from = gpus_text(given), *to = gpus_text(used);
    char *text = memory_format("ring %d runs over %s; given was %s", ring + 1, to, from);
    free(from);
    free(to);
    return text;
}

static char *find_difference(const channels *given, const channels *used) {
    if (given->count == 0 || used->count == 0 || used->count % given->count != 0)
        return memory_format("there are %d rings; given were %d", used->count, given->count);
    for (int c = 0; c < used->count; c++)
        if (!same_ring(&given->list[c % given->count], &used->list[c]))
            return describe_difference(c, &given->list[c % given->count], &used->list[c]);
    return NULL;
}

/* NCCL reads GPUs' numbers in base 16; some versions write them in base 10. */
static bool same_in_decimal(const channels *given, const char *used) {
    channels b = {0};
    error none = {0};
    char *difference = NULL;
    const bool good = read_channels(used, 10, &b, &none);
    if (good)
        difference = find_difference(given, &b);
    const bool same = good && difference == NULL;
    free(difference);
    free(b.list);
    return same;
}

bool ring_dump_compare(const char *given, const char *used, int *count, char **difference, error *e) {
    channels a = {0}, b = {0};
    *difference = NULL;
    bool good = read_channels(given, 16, &a, e);
    if (good && !same_in_decimal(&a, used)) {
        good = read_channels(used, 16, &b, e);
        *difference = good ? find_difference(&a, &b) : NULL;
    }
    *count = a.count;
    free(a.list);
    free(b.list);
    return good;
}
