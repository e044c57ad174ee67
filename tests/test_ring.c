/* Rings against a proof that the test checks by itself: the links' prices cost the sum, and every single ring, of all
 * that there are, costs at least 1 at these prices. */
#include "comm/ring.h"
#include "comm/ring_nccl.h"
#include "comm/ring_steps.h"
#include "comm/topology_build.h"
#include "comm/topology_xml.h"
#include "engine/checked.h"
#include "engine/rng.h"
#include "support/folder.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NEAR 1e-6 /* relative; ring_find stops at 1e-7 */

static topology golden(const char *name, const char *kind) {
    char path[512];
    topology t;
    error e = {0};
    snprintf(path, sizeof path, "%s/topologies/%s.%s.xml", TEST_GOLDEN, name, kind);
    if (!topology_read(path, &t, &e))
        fail_msg("%s", e.message);
    return t;
}

static ring_set find(const topology *t, int nodes) {
    ring_set set;
    error e = {0};
    if (!ring_find(t, nodes, &set, &e))
        fail_msg("%s", e.message);
    return set;
}

/* ---- the proof ---- */

static double cost(const topology *t, const route *r, const double *price) {
    double sum = 0;
    for (int l = 0; l < r->count; l++)
        sum += price[r->links[l]] * route_load(t, r, l);
    return sum;
}

static void load(const topology *t, const route *r, double bandwidth, double *loads) {
    for (int l = 0; l < r->count; l++)
        loads[r->links[l]] += bandwidth * route_load(t, r, l);
}

/* A walk through `order`, over card number `card`; count 0 in enter or leave: not allowed. */
typedef struct walk {
    const ring_steps *s;
    const int *order; /* GPUs from 0 on */
    int card;         /* -1: none */
} walk;

static int routes_of(const walk *w, const route *routes[RING_GPUS_MOST + 1]) {
    const int n = w->s->gpus;
    int count = 0;
    if (w->card >= 0)
        routes[count++] = &w->s->enter[w->card * n + w->order[0]];
    for (int i = 0; i < n - (w->card >= 0); i++)
        routes[count++] = &w->s->between[w->order[i] * n + w->order[(i + 1) % n]];
    if (w->card >= 0)
        routes[count++] = &w->s->leave[w->card * n + w->order[n - 1]];
    return count;
}

static double walk_cost(const walk *w, const double *price) {
    const route *routes[RING_GPUS_MOST + 1];
    const int count = routes_of(w, routes);
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += routes[i]->count > 0 ? cost(w->s->t, routes[i], price) : 1e9;
    return sum;
}

/* The least cost over all orders that continue order[0 .. fixed - 1]. */
static double cheapest(const ring_steps *s, int *order, int fixed, int card, const double *price) {
    if (fixed == s->gpus)
        return walk_cost(&(walk){s, order, card}, price);
    double least = 1e9;
    for (int i = fixed; i < s->gpus; i++) {
        const int chosen = order[i];
        order[i] = order[fixed];
        order[fixed] = chosen;
        least = fmin(least, cheapest(s, order, fixed + 1, card, price));
        order[fixed] = order[i];
        order[i] = chosen;
    }
    return least;
}

static void check_every_ring_costs(const ring_steps *s, const ring_set *set) {
    int order[RING_GPUS_MOST];
    for (int i = 0; i < s->gpus; i++)
        order[i] = i;
    for (int card = s->cards > 0 ? 0 : -1; card < s->cards; card++)
        assert_true(cheapest(s, order, card < 0, card, set->price) >= 1 - NEAR);
}

/* Every GPU once; links hold what the rings put on them. */
static void check_fits(const ring_steps *s, const ring *rings, int count, double *loads) {
    memset(loads, 0, (size_t)s->t->link_count * sizeof *loads);
    for (int i = 0; i < count; i++) {
        int order[RING_GPUS_MOST];
        bool seen[RING_GPUS_MOST] = {false};
        const route *routes[RING_GPUS_MOST + 1];
        for (int g = 0; g < s->gpus; g++) {
            order[g] = rings[i].order[g] - s->first_gpu;
            assert_true(order[g] >= 0 && order[g] < s->gpus && !seen[order[g]]);
            seen[order[g]] = true;
        }
        const walk w = {s, order, rings[i].card < 0 ? -1 : rings[i].card - s->first_card};
        const int steps = routes_of(&w, routes);
        assert_int_equal(steps, rings[i].step_count);
        for (int step = 0; step < steps; step++) {
            assert_true(routes[step]->count > 0);
            load(s->t, routes[step], rings[i].bandwidth, loads);
        }
    }
    for (int l = 0; l < s->t->link_count; l++)
        if (loads[l] > s->t->links[l].bandwidth * (1 + NEAR))
            fail_msg("link %d holds %.9g of %.9g", l, loads[l], s->t->links[l].bandwidth);
}

/* exhaustive: every ring is looked at, which is for few GPUs. */
static void check_proof(const topology *t, int nodes, const ring_set *set, bool exhaustive) {
    ring_steps s;
    error e = {0};
    assert_true(ring_steps_find(t, nodes > 1, &s, &e));
    double *loads = memory_allocate((size_t)t->link_count, sizeof *loads), sum = 0, value = 0;
    check_fits(&s, set->channels, set->channel_count, loads);
    check_fits(&s, set->rings, set->count, loads);
    for (int i = 0; i < set->count; i++)
        sum += set->rings[i].bandwidth;
    for (int l = 0; l < t->link_count; l++) {
        assert_true(set->price[l] >= 0);
        assert_true(fabs(set->load[l] - loads[l]) <= NEAR * t->links[l].bandwidth);
        value += set->price[l] * t->links[l].bandwidth;
    }
    assert_true(fabs(sum - set->total) <= NEAR * sum);
    assert_true(set->total <= set->bound * (1 + NEAR));
    assert_true(fabs(value - set->bound) <= NEAR * value);
    assert_true(set->channel_count * set->channel_speed <= set->total * (1 + NEAR));
    if (exhaustive)
        check_every_ring_costs(&s, set);
    free(loads);
    ring_steps_free(&s);
}

/* ---- known machines ---- */

/* Totals by hand: cube8 six NVLinks a GPU; ring6 two of 20 and, less, PCIe; switched16 12 links into an NVSwitch;
 * sockets4 (Intel) 12 behind each switch and 10 between two sockets, which several rings divide; far_card 4 links of
 * 20; unequal4 the GPU with 4 lanes; processor4 the processors' link. Several nodes: their cards, behind 24 of PCIe. */
static const struct {
    const char *name;
    int nodes;
    double total, channels;
} machines[] = {{"cube8", 1, 120, 120},      {"ring6", 1, 45, 45},      {"switched16", 1, 240, 240},
                {"rails4", 1, 240, 240},     {"sockets4", 1, 12, 12},   {"far_card", 1, 80, 80},
                {"unequal4", 1, 6, 6},       {"processor4", 1, 32, 32}, {"rails4", 2, 96, 96},
                {"switched16", 4, 192, 192}, {"far_card", 2, 12, 12},   {"one", 2, 12, 12}};

static void test_machines(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        topology t = golden(machines[i].name, "nccl");
        ring_set set = find(&t, machines[i].nodes);
        if (fabs(set.total - machines[i].total) > NEAR * machines[i].total)
            fail_msg("%s: %.9g, expected %.9g", machines[i].name, set.total, machines[i].total);
        assert_true(set.bound == set.total);
        assert_true(fabs(set.channel_count * set.channel_speed - machines[i].channels) <= NEAR * machines[i].channels);
        check_proof(&t, machines[i].nodes, &set, set.gpus <= 8);
        ring_free(&set);
        topology_free(&t);
    }
}

/* hwloc's files give the same rings, in the same order. */
static void test_sources(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        topology one = golden(machines[i].name, "nccl"), other = golden(machines[i].name, "hwloc");
        ring_set a = find(&one, 1), b = find(&other, 1);
        assert_int_equal(a.count, b.count);
        for (int r = 0; r < a.count; r++) {
            assert_memory_equal(a.rings[r].order, b.rings[r].order, (size_t)a.gpus * sizeof(int));
            assert_true(fabs(a.rings[r].bandwidth - b.rings[r].bandwidth) <= NEAR * a.rings[r].bandwidth);
        }
        ring_free(&a);
        ring_free(&b);
        topology_free(&one);
        topology_free(&other);
    }
}

/* Rings enter at the GPU beside the card and leave at the next nearest; cards are spread over rings. */
static void test_cards(void **state) {
    (void)state;
    topology t = golden("switched16", "nccl");
    ring_set set = find(&t, 2);
    int rings_of_card[8] = {0};
    assert_int_equal(set.count, 8);
    for (int i = 0; i < set.count; i++) {
        const ring *r = &set.rings[i];
        const int above = t.nodes[r->card].parent;
        assert_int_equal(t.nodes[r->order[0]].parent, above);
        assert_int_equal(t.nodes[r->order[set.gpus - 1]].parent, above);
        rings_of_card[t.nodes[r->card].number]++;
    }
    for (int c = 0; c < 8; c++)
        assert_int_equal(rings_of_card[c], 1);
    ring_free(&set);
    topology_free(&t);
    t = golden("rails4", "nccl");
    set = find(&t, 2);
    for (int i = 0; i < set.count; i++) {
        assert_int_equal(t.nodes[set.rings[i].order[0]].parent, t.nodes[set.rings[i].card].parent);
        assert_int_equal(set.rings[i].steps[0], ROUTE_SWITCH);
        assert_int_equal(set.rings[i].steps[set.rings[i].step_count - 1], ROUTE_PROXY);
    }
    ring_free(&set);
    topology_free(&t);
}

static void test_routes(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int from, to;
        route_kind kind;
        double bandwidth;
    } ways[] = {{"ring6", 0, 3, ROUTE_NVLINK, 20},        {"ring6", 0, 1, ROUTE_GPU, 20}, /* over 3 */
                {"ring6", 2, 3, ROUTE_SWITCH, 12},        {"ring6", 0, 4, ROUTE_SOCKETS, 10},
                {"ring6", 0, 2, ROUTE_GPU, 20},           {"cube8", 0, 5, ROUTE_GPU, 20},
                {"switched16", 0, 15, ROUTE_NVLINK, 240}, {"sockets4", 0, 1, ROUTE_SWITCH, 12},
                {"sockets4", 0, 7, ROUTE_SOCKETS, 10},    {"unequal4", 0, 2, ROUTE_NUMA, 24},
                {"processor4", 0, 3, ROUTE_SOCKETS, 32}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        topology t = golden(ways[i].name, "nccl");
        route *routes = memory_allocate((size_t)t.node_count, sizeof *routes);
        const int first = topology_first(&t, TOPOLOGY_GPU);
        route_find(&t, first + ways[i].to, routes);
        const route *found = &routes[first + ways[i].from];
        if (found->kind != ways[i].kind || fabs(found->bandwidth - ways[i].bandwidth) > 1e-9)
            fail_msg("%s, %d to %d: %s at %.9g", ways[i].name, ways[i].from, ways[i].to, route_name(found->kind),
                     found->bandwidth);
        free(routes);
        topology_free(&t);
    }
}

static void test_nothing_to_exchange(void **state) {
    (void)state;
    static const char *const names[] = {"one", "none"};
    for (int i = 0; i < 2; i++) {
        topology t = golden(names[i], "nccl");
        ring_set set = find(&t, 1);
        assert_int_equal(set.count, 0);
        assert_int_equal(set.channel_count, 0);
        assert_true(set.total == 0);
        ring_free(&set);
        topology_free(&t);
    }
}

/* ---- random machines ---- */

typedef struct dice {
    uint64_t machine, throws;
} dice;

static int draw(dice *d, int below) {
    uint32_t words[4];
    rng_words(d->machine, d->throws++, 0, words);
    return (int)(words[0] % (uint32_t)below);
}

static int add(found_machine *m, topology_kind kind, int parent, double bandwidth) {
    found_device device = {.node = {.kind = kind, .number = -1, .parent = parent, .socket = -1},
                           .bandwidth = bandwidth};
    if (kind == TOPOLOGY_NUMA)
        device.node.number = m->device_count;
    snprintf(device.node.bus, sizeof device.node.bus, "0000:%02x:00.0", m->device_count);
    device.port = kind == TOPOLOGY_CARD ? 12.5 : 0;
    return found_add(m, device);
}

/* Two to `most` GPUs: NUMA nodes, switches, unequal links, NVLinks between some, an NVSwitch for some, cards. */
static found_machine random_machine(dice *d, int most) {
    static const double speeds[] = {6, 12, 24};
    found_machine m = {.between_sockets = 6 + 4 * draw(d, 3)};
    const int numa = 1 + draw(d, 3), gpus = 2 + draw(d, most - 1), density = draw(d, 4);
    int above[8], list[8], places = 0;
    for (int n = 0; n < numa; n++) {
        above[places++] = add(&m, TOPOLOGY_NUMA, -1, 0);
        m.devices[above[places - 1]].node.relays_slowly = draw(d, 2) != 0;
        if (draw(d, 2) == 0)
            above[places] = add(&m, TOPOLOGY_SWITCH, above[places - 1], speeds[draw(d, 3)]), places++;
    }
    for (int g = 0; g < gpus; g++)
        list[g] = add(&m, TOPOLOGY_GPU, above[draw(d, places)], speeds[draw(d, 3)]);
    const int nvswitch = draw(d, 4) == 0 ? add(&m, TOPOLOGY_NVSWITCH, -1, 0) : -1;
    for (int a = 0; a < gpus; a++) {
        if (nvswitch >= 0 && draw(d, 3) > 0)
            found_add_nvlinks(&m, list[a], nvswitch, 2, 40);
        for (int b = 0; b < a; b++) {
            const int count = draw(d, 4) < density ? 1 + draw(d, 2) : 0;
            if (count > 0)
                found_add_nvlinks(&m, list[a], list[b], count, 20.0 * count);
        }
    }
    add(&m, TOPOLOGY_CARD, above[draw(d, places)], 12);
    if (draw(d, 2) == 0)
        add(&m, TOPOLOGY_CARD, above[draw(d, places)], 24);
    return m;
}

static topology finish(found_machine *m) {
    topology t;
    error e = {0};
    if (!topology_finish(m, &t, &e))
        fail_msg("%s", e.message);
    found_free(m);
    return t;
}

static void test_random(void **state) {
    (void)state;
    enum { MACHINES = 150 };
    for (uint64_t number = 0; number < MACHINES; number++)
        for (int nodes = 1; nodes <= 2; nodes++) {
            dice d = {.machine = number};
            found_machine m = random_machine(&d, nodes == 1 ? 6 : 5);
            topology t = finish(&m);
            ring_set set = find(&t, nodes);
            if (set.count == 0 || set.bound != set.total)
                fail_msg("machine %llu: %d rings, %.9g of %.9g", (unsigned long long)number, set.count, set.total,
                         set.bound);
            check_proof(&t, nodes, &set, true);
            ring_free(&set);
            topology_free(&t);
        }
}

/* Two GPUs below one root complex: Intel's takes 6/5 of the links for what passes from GPU to GPU. */
static void test_slow_relay(void **state) {
    (void)state;
    for (int slow = 0; slow <= 1; slow++) {
        found_machine m = {.between_sockets = 10};
        const int numa = add(&m, TOPOLOGY_NUMA, -1, 0);
        m.devices[numa].node.relays_slowly = slow;
        add(&m, TOPOLOGY_GPU, numa, 12);
        add(&m, TOPOLOGY_GPU, numa, 12);
        topology t = finish(&m);
        ring_set set = find(&t, 1);
        assert_true(fabs(set.total - (slow ? 10 : 12)) <= NEAR * set.total);
        ring_free(&set);
        topology_free(&t);
    }
}

/* Rings are told from the lowest device number on, whatever its address. */
static void test_beginning(void **state) {
    (void)state;
    static const int numbers[] = {5, 2, 9};
    found_machine m = {.between_sockets = 10};
    const int numa = add(&m, TOPOLOGY_NUMA, -1, 0);
    for (int g = 0; g < 3; g++) {
        const int gpu = add(&m, TOPOLOGY_GPU, numa, 12);
        m.devices[gpu].node.number = numbers[g];
    }
    topology t = finish(&m);
    ring_set set = find(&t, 1);
    assert_true(set.count > 0);
    for (int r = 0; r < set.count; r++)
        assert_int_equal(t.nodes[set.rings[r].order[0]].number, 2);
    ring_free(&set);
    topology_free(&t);
}

/* The same devices listed in another order. */
static found_machine shuffled(const found_machine *m, dice *d) {
    found_machine other = {.between_sockets = m->between_sockets};
    int *order = memory_allocate((size_t)m->device_count, sizeof *order);
    int *place = memory_allocate((size_t)m->device_count, sizeof *place);
    for (int i = 0; i < m->device_count; i++) {
        const int j = draw(d, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    for (int i = 0; i < m->device_count; i++)
        place[order[i]] = i;
    for (int i = 0; i < m->device_count; i++) {
        found_device device = m->devices[order[i]];
        device.node.parent = device.node.parent >= 0 ? place[device.node.parent] : -1;
        found_add(&other, device);
    }
    for (int i = m->nvlink_count - 1; i >= 0; i--) {
        const found_nvlinks *l = &m->nvlinks[i];
        found_add_nvlinks(&other, place[l->from], place[l->to], l->count, l->bandwidth);
    }
    free(order);
    free(place);
    return other;
}

static void test_order_of_devices(void **state) {
    (void)state;
    enum { MACHINES = 40 };
    for (uint64_t number = 1000; number < 1000 + MACHINES; number++) {
        dice d = {.machine = number};
        found_machine m = random_machine(&d, 7), other = shuffled(&m, &d);
        topology one = finish(&m), two = finish(&other);
        ring_set a = find(&one, 1), b = find(&two, 1);
        assert_true(a.total == b.total);
        assert_int_equal(a.count, b.count);
        for (int r = 0; r < a.count; r++)
            assert_memory_equal(a.rings[r].order, b.rings[r].order, (size_t)a.gpus * sizeof(int));
        ring_free(&a);
        ring_free(&b);
        topology_free(&one);
        topology_free(&two);
    }
}

/* ---- NCCL's file ---- */

static int number(const xml_element *x, const char *name, int base) {
    const char *text = xml_attribute(x, name);
    char *end;
    assert_non_null(text);
    const long value = strtol(text, &end, base);
    assert_true(end != text && *end == '\0');
    return (int)value;
}

static void check_channel(const topology *t, const ring *r, int gpus, const xml_element *channel) {
    const xml_element *child = channel->first;
    assert_string_equal(channel->name, "channel");
    for (int i = -1; i <= gpus; i++) {
        const bool card = i < 0 || i == gpus;
        if (card && r->card < 0)
            continue;
        assert_non_null(child);
        assert_string_equal(child->name, card ? "net" : "gpu");
        assert_int_equal(number(child, "dev", 16), t->nodes[card ? r->card : r->order[i]].number);
        child = child->next;
    }
    assert_null(child);
}

static void check_graph(const char *name, int nodes, const char *inside, const char *outside) {
    topology t = golden(name, "nccl");
    ring_set set = find(&t, nodes);
    error e = {0};
    FILE *out = fopen("graph.xml", "w");
    ring_write_nccl(&t, &set, out);
    fclose(out);
    xml_element *root = xml_read("graph.xml", &e);
    assert_non_null(root);
    assert_string_equal(root->name, "graphs");
    assert_int_equal(number(root, "version", 10), 1);
    const xml_element *graph = root->first;
    assert_string_equal(graph->name, "graph");
    assert_null(graph->next);
    assert_int_equal(number(graph, "id", 10), 0);
    assert_int_equal(number(graph, "pattern", 10), 4);
    assert_int_equal(number(graph, "nchannels", 10), set.channel_count);
    assert_true(fabs(strtod(xml_attribute(graph, "speedintra"), NULL) - set.channel_speed) <= 1e-4);
    assert_string_equal(xml_attribute(graph, "typeintra"), inside);
    assert_string_equal(xml_attribute(graph, "typeinter"), outside);
    int channels = 0;
    for (const xml_element *channel = graph->first; channel != NULL; channel = channel->next)
        check_channel(&t, &set.channels[channels++], set.gpus, channel);
    assert_int_equal(channels, set.channel_count);
    xml_free(root);
    ring_free(&set);
    topology_free(&t);
}

static void test_graph_file(void **state) {
    (void)state;
    check_graph("cube8", 1, "NVL", "NVL");
    check_graph("switched16", 1, "NVL", "NVL"); /* devices 10 to 15 are a to f */
    check_graph("sockets4", 1, "SYS", "SYS");
    check_graph("switched16", 2, "NVL", "PIX");
    check_graph("rails4", 3, "NVL", "PXN");
    check_graph("far_card", 2, "NVL", "SYS");
}

/* ---- mistakes ---- */

static void test_mistakes(void **state) {
    (void)state;
    found_machine m = {.between_sockets = 10};
    const int numa = add(&m, TOPOLOGY_NUMA, -1, 0);
    for (int g = 0; g < RING_GPUS_MOST + 1; g++)
        add(&m, TOPOLOGY_GPU, numa, 12);
    topology t = finish(&m);
    ring_set set;
    error e = {0};
    assert_false(ring_find(&t, 1, &set, &e));
    assert_string_equal(e.message, "the machine has 17 GPUs; rings are found for at most 16");
    topology_free(&t);
    t = golden("cube8", "nccl");
    e = (error){0};
    assert_false(ring_find(&t, 2, &set, &e));
    assert_string_equal(e.message,
                        "the machine has no network card, so no ring leaves it; expected one for several nodes");
    topology_free(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_machines),   cmocka_unit_test(test_sources),
        cmocka_unit_test(test_cards),      cmocka_unit_test(test_routes),
        cmocka_unit_test(test_random),     cmocka_unit_test(test_order_of_devices),
        cmocka_unit_test(test_slow_relay), cmocka_unit_test(test_beginning),
        TEST_IN_FOLDER(test_graph_file),   cmocka_unit_test(test_nothing_to_exchange),
        cmocka_unit_test(test_mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
