#include "launch/topology_text.h"

#include "engine/checked.h"

#include <stdlib.h>
#include <string.h>

enum { COLUMN = 46, LIMITS_SHOWN = 16 };

static const char *plural(int count) {
    return count == 1 ? "" : "s";
}

static void print_bytes(int64_t bytes, FILE *out) {
    if (bytes >= INT64_C(1) << 30)
        fprintf(out, "%.4g GiB", (double)bytes / (1 << 30));
    else if (bytes >= 1 << 20)
        fprintf(out, "%.4g MiB", (double)bytes / (1 << 20));
    else
        fprintf(out, "%.4g KiB", (double)bytes / (1 << 10));
}

/* ---- the tree ---- */

static int link_up(const topology *t, int node) {
    for (int l = 0; l < t->link_count; l++)
        if (t->links[l].kind == TOPOLOGY_PCI && t->links[l].from == node && t->links[l].to == t->nodes[node].parent)
            return l;
    return -1;
}

/* column: where the line stands already. */
static void print_device(const topology *t, int node, int column, FILE *out) {
    char title[TOPOLOGY_TITLE];
    const topology_node *n = &t->nodes[node];
    topology_title(t, node, title);
    fputs(title, out);
    int width = column + (int)strlen(title);
    if (n->kind == TOPOLOGY_GPU || (n->kind == TOPOLOGY_CARD && n->name[0] != '\0'))
        width += fprintf(out, "  %s", n->bus);
    const int link = link_up(t, node);
    fprintf(out, "%*s %7.4g GB/s", width < COLUMN ? COLUMN - width : 1, "", t->links[link].bandwidth);
    if (t->links[link].label[0] != '\0')
        fprintf(out, "  %s", t->links[link].label);
    if (n->kind == TOPOLOGY_GPU && n->name[0] != '\0')
        fprintf(out, "  %s", n->name);
    fputc('\n', out);
}

/* before: what the lines of this subtree begin with; three columns for each level. */
static void print_children(const topology *t, int parent, int depth, const char *before, FILE *out) {
    int left = 0;
    for (int n = 0; n < t->node_count; n++)
        left += t->nodes[n].parent == parent;
    for (int n = 0; n < t->node_count && left > 0; n++) {
        if (t->nodes[n].parent != parent)
            continue;
        left--;
        char *longer = memory_format("%s%s", before, left > 0 ? "│  " : "   ");
        fprintf(out, "%s%s", before, left > 0 ? "├─ " : "└─ ");
        print_device(t, n, 3 * depth, out);
        print_children(t, n, depth + 1, longer, out);
        free(longer);
    }
}

static void print_socket(const topology *t, int socket, FILE *out) {
    const topology_socket *s = &t->sockets[socket];
    fprintf(out, "Socket %d: %s%s%d core%s, %d thread%s", s->number, s->model, s->model[0] != '\0' ? ", " : "",
            s->cores, plural(s->cores), s->threads, plural(s->threads));
    for (int c = 0; c < TOPOLOGY_CACHES && s->caches[c].count > 0; c++) {
        fprintf(out, ", %s ", s->caches[c].name);
        if (s->caches[c].count > 1)
            fprintf(out, "%d x ", s->caches[c].count);
        print_bytes(s->caches[c].size, out);
    }
    fputc('\n', out);
}

static void print_tree(const topology *t, FILE *out) {
    int socket = -1;
    for (int n = 0; n < topology_count(t, TOPOLOGY_NUMA); n++) {
        const topology_node *node = &t->nodes[n];
        if (node->socket >= 0 && node->socket != socket)
            print_socket(t, socket = node->socket, out);
        fprintf(out, "NUMA node %d", node->number);
        if (node->threads > 0)
            fprintf(out, ", %d thread%s", node->threads, plural(node->threads));
        if (node->memory > 0) {
            fputs(", ", out);
            print_bytes(node->memory, out);
        }
        fputc('\n', out);
        print_children(t, n, 1, "", out);
    }
}

/* ---- links beside the tree ---- */

static const topology_link *link_between(const topology *t, topology_link_kind kind, int from, int to) {
    for (int l = 0; l < t->link_count; l++)
        if (t->links[l].kind == kind && t->links[l].from == from && t->links[l].to == to)
            return &t->links[l];
    return NULL;
}

static void print_socket_links(const topology *t, FILE *out) {
    const int count = topology_count(t, TOPOLOGY_NUMA);
    if (count > 1)
        fprintf(out, "Between any two NUMA nodes: %.4g GB/s\n", link_between(t, TOPOLOGY_SOCKET, 0, 1)->bandwidth);
}

static void print_ports(const topology *t, FILE *out) {
    char title[TOPOLOGY_TITLE];
    for (int l = 0; l < t->link_count; l += 2)
        if (t->links[l].kind == TOPOLOGY_PORT)
            fprintf(out, "%s to the network: %.4g GB/s%s%s\n", topology_title(t, t->links[l].from, title),
                    t->links[l].bandwidth, t->links[l].label[0] != '\0' ? ", " : "", t->links[l].label);
}

/* GPUs that are connected to one another: a table. */
static void print_gpu_links(const topology *t, FILE *out) {
    const int first = topology_first(t, TOPOLOGY_GPU), count = topology_count(t, TOPOLOGY_GPU);
    int links = 0;
    for (int l = 0; l < t->link_count; l++)
        links += t->links[l].kind == TOPOLOGY_NVLINK && t->nodes[t->links[l].from].kind == TOPOLOGY_GPU &&
                 t->nodes[t->links[l].to].kind == TOPOLOGY_GPU;
    if (links == 0)
        return;
    fputs("NVLinks between GPUs, GB/s each way:\n        ", out);
    for (int b = 0; b < count; b++)
        fprintf(out, "%7d", t->nodes[first + b].number);
    for (int a = 0; a < count; a++) {
        fprintf(out, "\n  GPU %-2d", t->nodes[first + a].number);
        for (int b = 0; b < count; b++) {
            const topology_link *link = link_between(t, TOPOLOGY_NVLINK, first + a, first + b);
            if (link != NULL)
                fprintf(out, "%7.4g", link->bandwidth);
            else
                fprintf(out, "%7s", a == b ? "" : ".");
        }
    }
    fputc('\n', out);
}

static bool between_gpus(const topology *t, const topology_link *link) {
    return t->nodes[link->from].kind == TOPOLOGY_GPU && t->nodes[link->to].kind == TOPOLOGY_GPU;
}

/* The GPUs whose NVLinks to one switch or processor are alike stand in one line. */
static void print_alike(const topology *t, int first, bool *printed, FILE *out) {
    char title[TOPOLOGY_TITLE];
    const topology_link *one = &t->links[first];
    const char *separator = "";
    int gpus = 0;
    for (int l = first; l < t->link_count; l += 2)
        gpus += t->links[l].from == one->from && strcmp(t->links[l].label, one->label) == 0;
    fprintf(out, gpus > 1 ? "GPUs " : "GPU ");
    for (int l = first; l < t->link_count; l += 2) {
        const topology_link *link = &t->links[l];
        if (link->from != one->from || strcmp(link->label, one->label) != 0)
            continue;
        printed[l / 2] = true;
        fprintf(out, "%s%d", separator, t->nodes[link->to].number);
        separator = " ";
    }
    fprintf(out, " to %s", topology_title(t, one->from, title));
    if (t->nodes[one->from].kind == TOPOLOGY_NVSWITCH && t->nodes[one->from].number > 1)
        fprintf(out, ", %d side by side", t->nodes[one->from].number);
    fprintf(out, ": %.4g GB/s%s, %s\n", one->bandwidth, gpus > 1 ? " each" : "", one->label);
}

static void print_other_nvlinks(const topology *t, FILE *out) {
    char from[TOPOLOGY_TITLE], to[TOPOLOGY_TITLE];
    bool *printed = memory_allocate((size_t)t->link_count + 1, sizeof *printed);
    for (int l = 0; l < t->link_count; l += 2) {
        const topology_link *link = &t->links[l];
        if (link->kind != TOPOLOGY_NVLINK || between_gpus(t, link) || printed[l / 2])
            continue;
        if (t->nodes[link->to].kind == TOPOLOGY_GPU)
            print_alike(t, l, printed, out);
        else
            fprintf(out, "%s to %s: %.4g GB/s, %s\n", topology_title(t, link->from, from),
                    topology_title(t, link->to, to), link->bandwidth, link->label);
    }
    free(printed);
}

void topology_print(const topology *t, const char *title, FILE *out) {
    const int gpus = topology_count(t, TOPOLOGY_GPU), numa = topology_count(t, TOPOLOGY_NUMA);
    const int switches = topology_count(t, TOPOLOGY_SWITCH), cards = topology_count(t, TOPOLOGY_CARD);
    fprintf(out, "%s", title);
    if (strcmp(title, t->source) != 0)
        fprintf(out, " (%s)", t->source);
    fprintf(out, ": %d GPU%s, %d NUMA node%s, %d PCIe switch%s, %d network card%s\n\n", gpus, plural(gpus), numa,
            plural(numa), switches, switches == 1 ? "" : "es", cards, plural(cards));
    print_tree(t, out);
    fputc('\n', out);
    print_socket_links(t, out);
    print_gpu_links(t, out);
    print_other_nvlinks(t, out);
    print_ports(t, out);
    if (t->unknown_targets > 0)
        fprintf(out, "Left out: %d entries for NVLinks to devices that the file does not list\n", t->unknown_targets);
}

/* ---- rings ---- */

static void print_way(const topology *t, int link, FILE *out) {
    char from[TOPOLOGY_TITLE], to[TOPOLOGY_TITLE];
    fprintf(out, "%s → %s", topology_title(t, t->links[link].from, from), topology_title(t, t->links[link].to, to));
}

static void print_ring(const topology *t, const ring *r, int gpus, FILE *out) {
    char title[TOPOLOGY_TITLE];
    route_kind worst = ROUTE_NVLINK;
    for (int i = 0; i < r->step_count; i++)
        worst = r->steps[i] > worst ? r->steps[i] : worst;
    fprintf(out, "  %8.4g GB/s  ", r->bandwidth);
    if (r->card >= 0)
        fprintf(out, "%s: ", topology_title(t, r->card, title));
    for (int i = 0; i < gpus; i++)
        fprintf(out, "%s%d", i > 0 ? " " : "", t->nodes[r->order[i]].number);
    fprintf(out, "  (%s)  slowest: ", route_name(worst));
    print_way(t, r->slowest, out);
    fprintf(out, ", %.4g GB/s", t->links[r->slowest].bandwidth);
    if (r->alone < t->links[r->slowest].bandwidth * (1 - 1e-6))
        fprintf(out, ", which carries %.4g of one ring", r->alone);
    fputc('\n', out);
}

static void print_why(const topology *t, const ring_set *set, FILE *out) {
    double crossings, bandwidth;
    int *links;
    const int count = topology_limits(t, set, &links);
    const bool cut = topology_one_cut(t, set, links, count, &crossings, &bandwidth);
    if (set->bound > set->total * (1 + 1e-6))
        fprintf(out, "No rings carry more than %.5g GB/s (these come to within %.2g %% of that):\n", set->bound,
                100 * (set->bound / set->total - 1));
    else
        fputs("No rings carry more:\n", out);
    if (cut && crossings < 1 + 1e-6)
        fprintf(out, "  in whatever order, a ring crosses %s; %s %.5g GB/s.\n",
                count == 1 ? "this link" : "at least one of these links",
                count == 1 ? "it holds" : "together they hold", bandwidth);
    else if (cut)
        fprintf(out,
                "  in whatever order, a ring takes at least %.4g GB/s of %s for each GB/s that it carries; %s %.5g "
                "GB/s.\n",
                crossings, count == 1 ? "this link" : "these links", count == 1 ? "it holds" : "together they hold",
                bandwidth);
    else
        fprintf(out,
                "  in whatever order, a ring takes at least 1 GB/s of these links, counted by their weights, for each "
                "GB/s that it carries; counted so, they hold %.5g GB/s.\n",
                set->bound);
    for (int i = 0; i < count && i < LIMITS_SHOWN; i++) {
        fprintf(out, "  %8.4g GB/s  ", t->links[links[i]].bandwidth);
        print_way(t, links[i], out);
        if (!cut)
            fprintf(out, ", weight %.4g", set->price[links[i]]);
        fputc('\n', out);
    }
    if (count > LIMITS_SHOWN)
        fprintf(out, "  and %d more\n", count - LIMITS_SHOWN);
    free(links);
}

static void print_predictions(const ring_set *set, int nodes, FILE *out) {
    const double ranks = (double)set->gpus * nodes;
    fprintf(out,
            "Predicted for large messages on %g ranks: all-gather and reduce-scatter %.5g GB/s bus bandwidth each, "
            "%.5g GB/s of the whole buffer.\n",
            ranks, set->total, set->total * ranks / (ranks - 1));
    fprintf(out, "For NCCL: %d channel%s of %.4g GB/s, %.5g GB/s together.\n", set->channel_count,
            plural(set->channel_count), set->channel_speed, set->channel_count * set->channel_speed);
}

void topology_print_rings(const topology *t, const ring_set *set, int nodes, FILE *out) {
    fputc('\n', out);
    if (set->count == 0) {
        fputs(set->gpus == 0 ? "No GPUs, so there are no rings.\n" : "One GPU, so there is nothing to exchange.\n",
              out);
        return;
    }
    fprintf(out, "%d ring%s, %.5g GB/s together", set->count, plural(set->count), set->total);
    if (nodes > 1)
        fprintf(out, ", on each of %d nodes like this one", nodes);
    fputs(":\n", out);
    for (int i = 0; i < set->count; i++)
        print_ring(t, &set->rings[i], set->gpus, out);
    print_why(t, set, out);
    print_predictions(set, nodes, out);
}
