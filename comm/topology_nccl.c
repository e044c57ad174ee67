/* NCCL's topology file: <system> of <cpu> (a NUMA node), in it <pci>, nested; in a device's <pci> <gpu> with <nvlink>,
 * or <nic> with <net>. */
#include "comm/topology_build.h"
#include "comm/topology_facts.h"
#include "comm/topology_xml.h"
#include "engine/checked.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool wrong(const found_machine *m, const xml_element *x, error *e, const char *name, const char *expected) {
    const char *value = xml_attribute(x, name);
    if (value == NULL)
        return error_set(e, EXIT_USAGE, "%s:%ld: <%s> lacks %s; expected %s", m->path, x->line, x->name, name,
                         expected);
    return error_set(e, EXIT_USAGE, "%s:%ld: <%s> has %s=\"%s\"; expected %s", m->path, x->line, x->name, name, value,
                     expected);
}

/* A whole number of 0 or more; `absent` where the attribute is not there. */
static bool read_number(const found_machine *m, const xml_element *x, const char *name, int absent, int *value,
                        error *e) {
    const char *text = xml_attribute(x, name);
    char *end = NULL;
    *value = absent;
    if (text == NULL)
        return true;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || number < 0 || number > 1000000000)
        return wrong(m, x, e, name, "a whole number of 0 or more");
    *value = (int)number;
    return true;
}

static bool copy_bus(const found_machine *m, const xml_element *x, const char *name, char bus[24], error *e) {
    const char *text = xml_attribute(x, name);
    if (text == NULL || text[0] == '\0' || strlen(text) > 23)
        return wrong(m, x, e, name, "a PCI address like 0000:10:1c.0");
    size_t length = 0;
    for (; text[length] != '\0'; length++)
        bus[length] = (char)tolower((unsigned char)text[length]);
    bus[length] = '\0';
    return true;
}

static const xml_element *child_named(const xml_element *x, const char *name) {
    for (const xml_element *child = x->first; child != NULL; child = child->next)
        if (strcmp(child->name, name) == 0)
            return child;
    return NULL;
}

/* ---- PCIe ---- */

static bool read_link(const found_machine *m, const xml_element *x, found_device *device, error *e) {
    const char *text = xml_attribute(x, "link_speed");
    const double speed = text != NULL ? strtod(text, NULL) : 0;
    int width;
    if (!read_number(m, x, "link_width", 0, &width, e))
        return false;
    if (width <= 0 && speed <= 0)
        return true; /* what lies above may say it */
    device->bandwidth = facts_pci(width, speed);
    snprintf(device->label, sizeof device->label, "x%d %g GT/s%s", width > 0 ? width : 16, speed > 0 ? speed : 8.0,
             width > 0 && speed > 0 ? ""
             : width > 0            ? ", speed assumed"
                                    : ", width assumed");
    return true;
}

/* Megabits per second of all ports. */
static bool read_card(const found_machine *m, const xml_element *nic, found_device *device, error *e) {
    for (const xml_element *net = nic->first; net != NULL; net = net->next) {
        int number, speed;
        if (strcmp(net->name, "net") != 0)
            continue;
        if (!read_number(m, net, "dev", -1, &number, e) || !read_number(m, net, "speed", 0, &speed, e))
            return false;
        if (device->node.number < 0)
            device->node.number = number;
        const char *name = xml_attribute(net, "name");
        if (device->node.name[0] == '\0' && name != NULL)
            snprintf(device->node.name, sizeof device->node.name, "%s", name);
        device->port += speed / 8000.0;
    }
    return true;
}

static bool kind_of(const xml_element *pci, topology_kind *kind) {
    const char *class = xml_attribute(pci, "class");
    class = class != NULL ? class : "";
    if (child_named(pci, "gpu") != NULL || strncmp(class, "0x03", 4) == 0)
        *kind = TOPOLOGY_GPU;
    else if (child_named(pci, "nic") != NULL || strncmp(class, "0x02", 4) == 0)
        *kind = TOPOLOGY_CARD;
    else if (strncmp(class, "0x0680", 6) == 0)
        *kind = TOPOLOGY_NVSWITCH;
    else if (child_named(pci, "pci") != NULL)
        *kind = TOPOLOGY_SWITCH;
    else
        return false; /* a bridge to nowhere, a disk ... */
    return true;
}

static bool read_devices(found_machine *m, const xml_element *x, int parent, error *e) {
    for (const xml_element *pci = x->first; pci != NULL; pci = pci->next) {
        found_device device = {.node = {.number = -1, .parent = parent, .socket = -1}};
        if (strcmp(pci->name, "pci") != 0)
            continue;
        if (!copy_bus(m, pci, "busid", device.node.bus, e) || !read_link(m, pci, &device, e))
            return false;
        if (!kind_of(pci, &device.node.kind))
            continue;
        const xml_element *gpu = child_named(pci, "gpu"), *nic = child_named(pci, "nic");
        if (gpu != NULL && !read_number(m, gpu, "dev", -1, &device.node.number, e))
            return false;
        if (nic != NULL && !read_card(m, nic, &device, e))
            return false;
        int index = found_add(m, device);
        if (!read_devices(m, pci, index, e))
            return false;
    }
    return true;
}

/* ---- NVLinks, once all devices are known ---- */

static int processor_above(const found_machine *m, int device) {
    while (m->devices[device].node.parent >= 0)
        device = m->devices[device].node.parent;
    return device;
}

static bool find_target(found_machine *m, int gpu, const xml_element *nvlink, int *target, error *e) {
    const char *class = xml_attribute(nvlink, "tclass");
    char bus[24];
    if (class != NULL && strcmp(class, "0x068001") == 0) { /* a processor's NVLink port */
        *target = processor_above(m, gpu);
        return true;
    }
    if (!copy_bus(m, nvlink, "target", bus, e))
        return false;
    const bool to_switch = class != NULL && strncmp(class, "0x0680", 6) == 0;
    *target = found_by_bus(m, to_switch ? TOPOLOGY_NVSWITCH : TOPOLOGY_GPU, bus);
    if (*target < 0 && to_switch) {
        found_device device = {.node = {.kind = TOPOLOGY_NVSWITCH, .parent = -1, .socket = -1}};
        memcpy(device.node.bus, bus, sizeof bus);
        *target = found_add(m, device);
    }
    return true;
}

static bool read_nvlinks(found_machine *m, const xml_element *gpu, const char *bus, error *e) {
    int sm, count, target;
    if (!read_number(m, gpu, "sm", 0, &sm, e))
        return false;
    for (const xml_element *nvlink = gpu->first; nvlink != NULL; nvlink = nvlink->next) {
        if (strcmp(nvlink->name, "nvlink") != 0)
            continue;
        int from = found_by_bus(m, TOPOLOGY_GPU, bus);
        if (!read_number(m, nvlink, "count", 1, &count, e) || !find_target(m, from, nvlink, &target, e))
            return false;
        if (target == from)
            return wrong(m, nvlink, e, "target", "another device");
        if (target >= 0)
            found_add_nvlinks(m, from, target, count, count * facts_nvlink(sm));
        else
            m->unknown_targets++;
    }
    return true;
}

static bool read_all_nvlinks(found_machine *m, const xml_element *x, error *e) {
    char bus[24];
    for (const xml_element *pci = x->first; pci != NULL; pci = pci->next) {
        const xml_element *gpu = child_named(pci, "gpu");
        if (gpu != NULL && strcmp(pci->name, "pci") == 0 &&
            !(copy_bus(m, pci, "busid", bus, e) && read_nvlinks(m, gpu, bus, e)))
            return false;
        if (!read_all_nvlinks(m, pci, e))
            return false;
    }
    return true;
}

/* ---- processors ---- */

static int count_bits(const char *mask) {
    int count = 0;
    for (; *mask != '\0'; mask++)
        if (isxdigit((unsigned char)*mask)) {
            const int digit = isdigit((unsigned char)*mask) ? *mask - '0' : tolower((unsigned char)*mask) - 'a' + 10;
            count += __builtin_popcount((unsigned)digit);
        }
    return count;
}

static bool read_processor(found_machine *m, const xml_element *cpu, error *e) {
    const char *vendor = xml_attribute(cpu, "vendor"), *architecture = xml_attribute(cpu, "arch");
    const char *affinity = xml_attribute(cpu, "affinity");
    int family, model;
    found_device device = {.node = {.kind = TOPOLOGY_NUMA, .parent = -1, .socket = -1}};
    if (xml_attribute(cpu, "numaid") == NULL)
        return wrong(m, cpu, e, "numaid", "the number of a NUMA node");
    if (strcmp(xml_attribute(cpu, "numaid"), "-1") != 0 && /* a machine without NUMA */
        !read_number(m, cpu, "numaid", 0, &device.node.number, e))
        return false;
    if (!read_number(m, cpu, "familyid", 0, &family, e) || !read_number(m, cpu, "modelid", 0, &model, e))
        return false;
    vendor = vendor != NULL ? vendor : "";
    device.node.relays_slowly = strcmp(vendor, "GenuineIntel") == 0;
    device.node.threads = affinity != NULL ? count_bits(affinity) : 0;
    const double between = facts_socket(architecture != NULL ? architecture : "", vendor, family, model);
    if (m->between_sockets <= 0 || between < m->between_sockets)
        m->between_sockets = between;
    int index = found_add(m, device);
    return read_devices(m, cpu, index, e);
}

bool topology_from_nccl(const xml_element *system, found_machine *m, error *e) {
    for (const xml_element *cpu = system->first; cpu != NULL; cpu = cpu->next)
        if (strcmp(cpu->name, "cpu") == 0 && !read_processor(m, cpu, e))
            return false;
    if (m->device_count == 0)
        return error_set(e, EXIT_USAGE, "%s:%ld: <system> has no <cpu>; expected one for each NUMA node", m->path,
                         system->line);
    return read_all_nvlinks(m, system, e);
}
