#include "comm/ring_nccl.h"

#include <string.h>

enum { GRAPH_RING = 0, PATTERN_RING = 4 };

/* The farthest way between GPUs, and between GPUs and cards; inside one node NCCL takes them as the same. */
static void find_worst(const ring_set *set, route_kind *inside, route_kind *outside) {
    *inside = ROUTE_NVLINK;
    *outside = ROUTE_NVLINK;
    for (int c = 0; c < set->channel_count; c++) {
        const ring *r = &set->channels[c];
        for (int i = 0; i < r->step_count; i++) {
            const bool to_card = r->card >= 0 && (i == 0 || i == r->step_count - 1);
            route_kind *worst = to_card ? outside : inside;
            *worst = r->steps[i] > *worst ? r->steps[i] : *worst;
        }
    }
    if (set->channels[0].card < 0)
        *outside = *inside;
}

static bool all_alike(const ring_set *set) {
    for (int c = 1; c < set->channel_count; c++)
        if (set->channels[c].card != set->channels[0].card ||
            memcmp(set->channels[c].order, set->channels[0].order, (size_t)set->gpus * sizeof(int)) != 0)
            return false;
    return true;
}

static void write_channel(const topology *t, const ring *r, int gpus, FILE *out) {
    fputs("    <channel>\n", out);
    if (r->card >= 0)
        fprintf(out, "      <net dev=\"%x\"/>\n", (unsigned)t->nodes[r->card].number);
    for (int i = 0; i < gpus; i++)
        fprintf(out, "      <gpu dev=\"%x\"/>\n", (unsigned)t->nodes[r->order[i]].number);
    if (r->card >= 0)
        fprintf(out, "      <net dev=\"%x\"/>\n", (unsigned)t->nodes[r->card].number);
    fputs("    </channel>\n", out);
}

void ring_write_nccl(const topology *t, const ring_set *set, FILE *out) {
    route_kind inside, outside;
    find_worst(set, &inside, &outside);
    fprintf(out,
            "<graphs version=\"1\">\n"
            "  <graph id=\"%d\" pattern=\"%d\" crossnic=\"0\" nchannels=\"%d\" speedintra=\"%g\" speedinter=\"%g\" "
            "latencyinter=\"0\" typeintra=\"%s\" typeinter=\"%s\" samechannels=\"%d\">\n",
            GRAPH_RING, PATTERN_RING, set->channel_count, set->channel_speed, set->channel_speed, route_name(inside),
            route_name(outside), all_alike(set));
    for (int c = 0; c < set->channel_count; c++)
        write_channel(t, &set->channels[c], set->gpus, out);
    fputs("  </graph>\n</graphs>\n", out);
}
