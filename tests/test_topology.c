/* The machine's graph: the same from hwloc's XML and from NCCL's, links with what they carry, and mistakes in files. */
#include "comm/topology.h"
#include "comm/topology_facts.h"
#include "support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static topology golden(const char *name, const char *kind) {
    char path[512];
    topology t;
    error e = {0};
    snprintf(path, sizeof path, "%s/topologies/%s.%s.xml", TEST_GOLDEN, name, kind);
    if (!topology_read(path, &t, &e))
        fail_msg("%s", e.message);
    return t;
}

static topology written(const char *text) {
    topology t;
    error e = {0};
    test_text_write("machine.xml", text);
    if (!topology_read("machine.xml", &t, &e))
        fail_msg("%s", e.message);
    return t;
}

/* GB/s from one device to another over their widest link; 0: none. */
static double direct(const topology *t, const char *from, const char *to) {
    char title[TOPOLOGY_TITLE];
    double widest = 0;
    for (int l = 0; l < t->link_count; l++)
        if (t->links[l].bandwidth > widest && strcmp(topology_title(t, t->links[l].from, title), from) == 0 &&
            strcmp(topology_title(t, t->links[l].to, title), to) == 0)
            widest = t->links[l].bandwidth;
    return widest;
}

static void assert_near(double found, double expected) {
    if (!(found <= expected * (1 + 1e-9) && found >= expected * (1 - 1e-9)))
        fail_msg("%.12g, expected %.12g", found, expected);
}

/* ---- graphs ---- */

static void assert_same_graph(const topology *a, const topology *b, const char *name) {
    if (a->node_count != b->node_count || a->link_count != b->link_count)
        fail_msg("%s: %d nodes and %d links, %d and %d", name, a->node_count, a->link_count, b->node_count,
                 b->link_count);
    for (int n = 0; n < a->node_count; n++) {
        const topology_node *one = &a->nodes[n], *other = &b->nodes[n];
        assert_int_equal(one->kind, other->kind);
        assert_string_equal(one->bus, other->bus);
        assert_int_equal(one->parent, other->parent);
        assert_int_equal(one->relays_slowly, other->relays_slowly);
        if (one->kind != TOPOLOGY_NVSWITCH) /* how many there are inside */
            assert_int_equal(one->number, other->number);
    }
    for (int l = 0; l < a->link_count; l++) {
        assert_int_equal(a->links[l].kind, b->links[l].kind);
        assert_int_equal(a->links[l].from, b->links[l].from);
        assert_int_equal(a->links[l].to, b->links[l].to);
        assert_int_equal(a->links[l].bridges, b->links[l].bridges);
        /* hwloc's files say nothing of a port's speed */
        if (a->links[l].kind != TOPOLOGY_PORT)
            assert_near(a->links[l].bandwidth, b->links[l].bandwidth);
    }
}

/* The NCCL files list everything in the opposite order. */
static void test_same_machine(void **state) {
    (void)state;
    static const char *const names[] = {"cube8",    "ring6",    "switched16", "rails4", "sockets4",
                                        "far_card", "unequal4", "processor4", "one",    "none"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        topology hwloc = golden(names[i], "hwloc"), nccl = golden(names[i], "nccl");
        assert_string_equal(hwloc.source, "hwloc XML");
        assert_string_equal(nccl.source, "NCCL XML");
        assert_same_graph(&hwloc, &nccl, names[i]);
        topology_free(&hwloc);
        topology_free(&nccl);
    }
}

static void test_links(void **state) {
    (void)state;
    topology t = golden("cube8", "hwloc");
    assert_int_equal(topology_count(&t, TOPOLOGY_GPU), 8);
    assert_int_equal(topology_count(&t, TOPOLOGY_SWITCH), 4);
    assert_int_equal(t.socket_count, 2);
    assert_near(direct(&t, "GPU 0", "GPU 3"), 40);
    assert_near(direct(&t, "GPU 3", "GPU 0"), 40);
    assert_near(direct(&t, "GPU 0", "GPU 1"), 20);
    assert_true(direct(&t, "GPU 0", "GPU 5") == 0);
    assert_near(direct(&t, "GPU 0", "PCIe switch 0000:10:00.0"), 12);
    assert_near(direct(&t, "PCIe switch 0000:10:00.0", "NUMA node 0"), 12);
    assert_near(direct(&t, "NUMA node 0", "NUMA node 1"), 10);
    topology_free(&t);
    t = golden("switched16", "nccl");
    assert_near(direct(&t, "GPU 9", "NVSwitch"), 240);
    assert_near(direct(&t, "card mlx5_2", "network"), 25);
    assert_near(direct(&t, "card mlx5_2", "PCIe switch 0000:30:00.0"), 24);
    topology_free(&t);
    t = golden("unequal4", "hwloc");
    assert_near(direct(&t, "GPU 0", "NUMA node 0"), 24);
    assert_near(direct(&t, "GPU 1", "NUMA node 0"), 12);
    assert_near(direct(&t, "NUMA node 0", "GPU 3"), 6);
    topology_free(&t);
    t = golden("processor4", "hwloc");
    assert_near(direct(&t, "NUMA node 1", "GPU 2"), 36);
    assert_near(direct(&t, "GPU 0", "GPU 1"), 36);
    assert_near(direct(&t, "NUMA node 0", "NUMA node 1"), 32);
    topology_free(&t);
}

/* ---- what files leave out ---- */

#define CPU "<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\" vendor=\"AuthenticAMD\">"
#define END "</cpu></system>"
#define GPU(bus, inside) "<pci busid=\"" bus "\" class=\"0x030200\">" inside "</pci>"

static void test_assumed(void **state) {
    (void)state;
    /* Vendors' files: no speed, no numbers, a bridge in which everything has its own link, addresses in capitals. */
    topology t = written(CPU "<pci busid=\"FFFF:FF:01.0\" class=\"0x060400\" link_speed=\"\" link_width=\"0\">" GPU(
        "0000:B0:00.0", "") GPU("0000:A0:00.0", "") "</pci>" END);
    assert_int_equal(topology_count(&t, TOPOLOGY_GPU), 2);
    assert_string_equal(t.nodes[topology_first(&t, TOPOLOGY_GPU)].bus, "0000:a0:00.0");
    assert_int_equal(t.nodes[topology_first(&t, TOPOLOGY_GPU)].number, 0);
    assert_near(direct(&t, "GPU 1", "PCIe switch ffff:ff:01.0"), 12);
    assert_non_null(strstr(t.links[0].label, "assumed"));
    topology_free(&t);
    /* Bridges that lead to one device only: their links in a row are one, as slow as the slowest. */
    t = written(CPU "<pci busid=\"0000:01:00.0\" class=\"0x060400\" link_speed=\"8.0 GT/s PCIe\" link_width=\"8\">"
                    "<pci busid=\"0000:02:00.0\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"/>"
                    "</pci>" END);
    assert_int_equal(topology_count(&t, TOPOLOGY_SWITCH), 0);
    assert_near(direct(&t, "GPU 0", "NUMA node 0"), 6);
    assert_int_equal(t.links[0].bridges, 1);
    topology_free(&t);
    /* A link to a GPU that is hidden. */
    t = written(CPU GPU("0000:01:00.0", "<gpu dev=\"3\" sm=\"70\"><nvlink target=\"0000:09:00.0\" count=\"2\" "
                                        "tclass=\"0x030200\"/></gpu>") END);
    assert_int_equal(t.unknown_targets, 1);
    assert_int_equal(t.nodes[topology_first(&t, TOPOLOGY_GPU)].number, 3);
    topology_free(&t);
}

static void test_this_machine(void **state) {
    (void)state;
    topology t;
    error e = {0};
    assert_true(topology_read(NULL, &t, &e));
    assert_string_equal(t.source, "this machine");
    assert_true(topology_count(&t, TOPOLOGY_NUMA) >= 1);
    assert_true(t.nodes[0].threads >= 1);
    topology_free(&t);
}

/* ---- facts ---- */

static void test_facts(void **state) {
    (void)state;
    assert_near(facts_pci(16, 8), 12);
    assert_near(facts_pci(16, 16), 24);
    assert_near(facts_pci(16, 32), 48);
    assert_near(facts_pci(4, 64), 24);
    assert_near(facts_pci(0, 0), 12);
    assert_near(facts_pci_coded(15.753846), 12); /* Gen3 x16 or Gen4 x8: the same */
    assert_near(facts_pci_coded(63.015385), 48);
    assert_near(facts_pci_coded(8.0), 6); /* Gen2 x16 */
    assert_near(facts_pci_coded(7.876923), 6);
    assert_near(facts_nvlink(60), 18);
    assert_near(facts_nvlink(75), 20);
    assert_near(facts_nvlink(86), 12);
    assert_near(facts_nvlink(90), 20.6);
    assert_near(facts_nvlink(103), 40.1);
    assert_near(facts_socket("x86_64", "GenuineIntel", 6, 79), 6);
    assert_near(facts_socket("x86_64", "GenuineIntel", 6, 106), 10);
    assert_near(facts_socket("x86_64", "GenuineIntel", 6, 143), 22);
    assert_near(facts_socket("x86_64", "GenuineIntel", 6, 207), 40);
    assert_near(facts_socket("x86_64", "AuthenticAMD", 25, 1), 16);
    assert_near(facts_socket("ppc64le", "", 0, 0), 32);
    assert_near(facts_socket("aarch64", "", 0, 0), 6);
}

/* The same number of GB/s can be links of several generations; the machine's other numbers tell them apart. */
static void test_nvlink_generations(void **state) {
    (void)state;
    const double first[] = {40, 80, 20}, second[] = {50, 25}, hundred[] = {100}, fourth[] = {478.125}, odd[] = {33, 7};
    assert_near(facts_nvlink_signalled(first, 3, 80).carried, 18);
    assert_near(facts_nvlink_signalled(second, 2, 150).carried, 20);
    assert_near(facts_nvlink_signalled(hundred, 1, 100).carried, 20); /* five of the first generation: too many */
    assert_near(facts_nvlink_signalled(fourth, 1, 478.125).carried, 20.6);
    assert_near(facts_nvlink_signalled(odd, 2, 40).carried / facts_nvlink_signalled(odd, 2, 40).signalling, 0.8);
}

/* ---- mistakes ---- */

static void refused(const char *text, const char *expected) {
    topology t;
    error e = {0};
    if (text != NULL)
        test_text_write("machine.xml", text);
    assert_false(topology_read(text != NULL ? "machine.xml" : "absent.xml", &t, &e));
    assert_string_equal(e.message, expected);
    assert_int_equal(e.code, EXIT_USAGE);
}

static void test_mistakes(void **state) {
    (void)state;
    refused(NULL, "absent.xml: cannot open: No such file or directory");
    refused("[model]\nfamily = gpt2\n",
            "machine.xml:1: not XML: syntax error; expected hwloc's XML (lstopo FILE.xml) or NCCL's "
            "topology XML (NCCL_TOPO_DUMP_FILE)");
    refused("", "machine.xml:1: not XML: no element found; expected hwloc's XML (lstopo FILE.xml) or NCCL's topology "
                "XML (NCCL_TOPO_DUMP_FILE)");
    refused("<?xml version=\"1.0\"?>\n<graphs version=\"1\"/>\n",
            "machine.xml:2: the root element is <graphs>; expected <topology> (hwloc's XML) or <system> (NCCL's "
            "topology XML)");
    refused("<topology>\n<object type=\"System\" os_level=\"-1\"/></topology>",
            "machine.xml: written by hwloc 1, whose files lack NVLinks and say nothing about memory nodes that can be "
            "read today; write it anew with hwloc 2: lstopo FILE.xml");
    refused("<system version=\"1\"/>", "machine.xml:1: <system> has no <cpu>; expected one for each NUMA node");
    refused("<system>\n<cpu/></system>", "machine.xml:2: <cpu> lacks numaid; expected the number of a NUMA node");
    refused(CPU "\n<pci class=\"0x030200\"/>" END,
            "machine.xml:2: <pci> lacks busid; expected a PCI address like 0000:10:1c.0");
    refused(CPU "\n<pci busid=\"0000:01:00.0\" class=\"0x030200\" link_width=\"wide\"/>" END,
            "machine.xml:2: <pci> has link_width=\"wide\"; expected a whole number of 0 or more");
    refused(CPU GPU("0000:01:00.0", "") GPU("0000:01:00.0", "") END,
            "machine.xml: two devices have the PCI address 0000:01:00.0; expected one");
    refused(CPU GPU("0000:01:00.0", "<gpu dev=\"1\"/>") GPU("0000:02:00.0", "<gpu dev=\"1\"/>") END,
            "machine.xml: two GPUs have the number 1; expected one");
    refused(CPU GPU("0000:01:00.0", "<gpu dev=\"0\"><nvlink target=\"0000:01:00.0\"/></gpu>") END,
            "machine.xml:1: <nvlink> has target=\"0000:01:00.0\"; expected another device");
}

static void test_not_hwlocs(void **state) {
    (void)state;
    topology t;
    error e = {0};
    test_text_write("machine.xml", "<topology version=\"2.0\"><nothing/></topology>");
    assert_false(topology_read("machine.xml", &t, &e));
    assert_non_null(strstr(e.message, "machine.xml: hwloc "));
    assert_int_equal(e.code, EXIT_USAGE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_machine), cmocka_unit_test(test_links),    TEST_IN_FOLDER(test_assumed),
        cmocka_unit_test(test_this_machine), cmocka_unit_test(test_facts),    cmocka_unit_test(test_nvlink_generations),
        TEST_IN_FOLDER(test_mistakes),       TEST_IN_FOLDER(test_not_hwlocs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
