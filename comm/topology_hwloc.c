/* hwloc's view: of this machine, or from a file that hwloc has written. Two things are better known to Linux than to
 * hwloc and are read from /sys for this machine: a PCIe link's width and its highest speed (hwloc gives the present
 * speed, which idle GPUs lower to save power), and how fast a card's port is. */
#include "comm/topology_build.h"
#include "comm/topology_facts.h"
#include "engine/checked.h"

#include <errno.h>
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct hwloc_view {
    hwloc_topology_t machine;
    found_machine *found;
    bool live;
} hwloc_view;

/* obj->userdata holds the index of the device that an object became, plus one. */
static int index_of(hwloc_obj_t obj) {
    return (int)(intptr_t)obj->userdata - 1;
}

static void set_index(hwloc_obj_t obj, int index) {
    obj->userdata = (void *)(intptr_t)(index + 1);
}

static const char *info_of(hwloc_obj_t obj, const char *name) {
    const char *value = hwloc_obj_get_info_by_name(obj, name);
    return value != NULL ? value : "";
}

/* ---- sockets and NUMA nodes ---- */

static void add_cache(topology_socket *socket, hwloc_obj_t cache) {
    char name[16];
    hwloc_obj_type_snprintf(name, sizeof name, cache, 0);
    for (int c = 0; c < TOPOLOGY_CACHES; c++) {
        topology_cache *known = &socket->caches[c];
        if (known->count == 0) {
            snprintf(known->name, sizeof known->name, "%s", name);
            known->size = (int64_t)cache->attr->cache.size;
        }
        if (strcmp(known->name, name) == 0 && known->size == (int64_t)cache->attr->cache.size) {
            known->count++;
            return;
        }
    }
}

static void add_caches(hwloc_topology_t machine, hwloc_obj_t package, topology_socket *socket) {
    for (int level = HWLOC_OBJ_L5CACHE; level >= HWLOC_OBJ_L1CACHE; level--) {
        hwloc_obj_t cache = NULL;
        while ((cache = hwloc_get_next_obj_inside_cpuset_by_type(machine, package->cpuset, (hwloc_obj_type_t)level,
                                                                 cache)) != NULL)
            add_cache(socket, cache);
    }
}

static void add_sockets(const hwloc_view *view) {
    hwloc_obj_t package = NULL;
    while ((package = hwloc_get_next_obj_by_type(view->machine, HWLOC_OBJ_PACKAGE, package)) != NULL) {
        topology_socket socket = {.number = (int)package->os_index};
        snprintf(socket.model, sizeof socket.model, "%s", info_of(package, "CPUModel"));
        socket.cores = hwloc_get_nbobjs_inside_cpuset_by_type(view->machine, package->cpuset, HWLOC_OBJ_CORE);
        socket.threads = hwloc_bitmap_weight(package->cpuset);
        add_caches(view->machine, package, &socket);
        set_index(package, found_add_socket(view->found, socket));
    }
}

/* Memory without processors of its own (of a GPU, of an expander) is no end of a PCIe tree, and of two kinds of memory
 * beside the same cores the first stands for both. */
static bool is_processor(const hwloc_view *view, hwloc_obj_t numa) {
    if (hwloc_bitmap_iszero(numa->cpuset))
        return false;
    hwloc_obj_t earlier = NULL;
    while ((earlier = hwloc_get_next_obj_by_type(view->machine, HWLOC_OBJ_NUMANODE, earlier)) != numa)
        if (hwloc_bitmap_isequal(earlier->cpuset, numa->cpuset))
            return false;
    return true;
}

static hwloc_obj_t package_of(hwloc_topology_t machine, hwloc_const_cpuset_t cpuset) {
    hwloc_obj_t package = NULL;
    while ((package = hwloc_get_next_obj_by_type(machine, HWLOC_OBJ_PACKAGE, package)) != NULL)
        if (hwloc_bitmap_intersects(package->cpuset, cpuset))
            return package;
    return NULL;
}

static void add_numa_nodes(const hwloc_view *view) {
    found_machine *m = view->found;
    const char *architecture = info_of(hwloc_get_root_obj(view->machine), "Architecture");
    hwloc_obj_t numa = NULL;
    while ((numa = hwloc_get_next_obj_by_type(view->machine, HWLOC_OBJ_NUMANODE, numa)) != NULL) {
        found_device device = {.node = {.kind = TOPOLOGY_NUMA, .parent = -1, .socket = -1}};
        if (!is_processor(view, numa))
            continue;
        hwloc_obj_t package = package_of(view->machine, numa->cpuset);
        hwloc_obj_t told = package != NULL ? package : hwloc_get_root_obj(view->machine);
        const char *vendor = info_of(told, "CPUVendor");
        device.node.number = (int)numa->os_index;
        device.node.socket = package != NULL ? index_of(package) : -1;
        device.node.threads = hwloc_bitmap_weight(numa->cpuset);
        device.node.memory = (int64_t)numa->attr->numanode.local_memory;
        device.node.relays_slowly = strcmp(vendor, "GenuineIntel") == 0;
        const double between = facts_socket(architecture, vendor, atoi(info_of(told, "CPUFamilyNumber")),
                                            atoi(info_of(told, "CPUModelNumber")));
        if (m->between_sockets <= 0 || between < m->between_sockets)
            m->between_sockets = between;
        set_index(numa, found_add(m, device));
    }
}

/* The lowest NUMA node with processors near an object; any, where it has none. */
static int numa_near(const hwloc_view *view, hwloc_obj_t obj) {
    int any = -1;
    hwloc_obj_t numa = NULL;
    while ((numa = hwloc_get_next_obj_by_type(view->machine, HWLOC_OBJ_NUMANODE, numa)) != NULL) {
        if (numa->userdata == NULL)
            continue;
        any = any < 0 ? index_of(numa) : any;
        if (hwloc_bitmap_isset(obj->nodeset, numa->os_index))
            return index_of(numa);
    }
    return any;
}

/* ---- what Linux says of this machine ---- */

/* The first number in a file of /sys; 0: there is none. */
static double read_number(const char *format, const char *device, const char *name) {
    char path[256], text[64] = "";
    snprintf(path, sizeof path, format, device, name);
    FILE *in = fopen(path, "r");
    if (in == NULL)
        return 0;
    const bool read = fgets(text, sizeof text, in) != NULL;
    fclose(in);
    return read ? strtod(text, NULL) : 0; /* "Unknown" is no number */
}

static double port_speed(const char *name, hwloc_obj_osdev_type_t type) {
    if (type == HWLOC_OBJ_OSDEV_OPENFABRICS)
        return read_number("/sys/class/infiniband/%s/%s", name, "ports/1/rate") / 8; /* from Gb/s */
    const double megabits = read_number("/sys/class/net/%s/%s", name, "speed");
    return megabits > 0 ? megabits / 8000 : 0; /* -1: down */
}

static void read_link(const hwloc_view *view, hwloc_obj_t obj, found_device *device) {
    static const char folder[] = "/sys/bus/pci/devices/%s/%s";
    const int width = view->live ? (int)read_number(folder, device->node.bus, "current_link_width") : 0;
    const double speed = view->live ? read_number(folder, device->node.bus, "max_link_speed") : 0;
    const double coded = obj->attr->pcidev.linkspeed; /* a bridge's first member is the same */
    if (width > 0 && speed > 0) {
        device->bandwidth = facts_pci(width, speed);
        snprintf(device->label, sizeof device->label, "x%d %g GT/s", width, speed);
    } else if (coded > 0) {
        device->bandwidth = facts_pci_coded(coded);
        snprintf(device->label, sizeof device->label, "%.4g GB/s on the wire", coded);
    }
}

/* ---- devices ---- */

static bool is_bridge_from_pci(hwloc_obj_t obj) {
    return obj->type == HWLOC_OBJ_BRIDGE && obj->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI;
}

static int add_bridge(const hwloc_view *view, hwloc_obj_t obj);

static int add_parent(const hwloc_view *view, hwloc_obj_t obj) {
    return obj->parent != NULL && is_bridge_from_pci(obj->parent)
               ? add_bridge(view, obj->parent)
               : numa_near(view, hwloc_get_non_io_ancestor_obj(view->machine, obj));
}

static found_device device_at(const hwloc_view *view, hwloc_obj_t obj, topology_kind kind) {
    const struct hwloc_pcidev_attr_s *pci = &obj->attr->pcidev;
    found_device device = {.node = {.kind = kind, .number = -1, .socket = -1}};
    snprintf(device.node.bus, sizeof device.node.bus, "%04x:%02x:%02x.%01x", pci->domain, pci->bus, pci->dev,
             pci->func);
    read_link(view, obj, &device);
    device.node.parent = add_parent(view, obj);
    return device;
}

/* Below the root complex come, in turn, ports and switches: a port is the upper end of one link. */
static int add_bridge(const hwloc_view *view, hwloc_obj_t obj) {
    if (obj->userdata == NULL) {
        found_device device = device_at(view, obj, TOPOLOGY_SWITCH);
        device.is_port = obj->attr->bridge.depth % 2 == 1;
        set_index(obj, found_add(view->found, device));
    }
    return index_of(obj);
}

/* Device number N of an operating system device called, say, "cuda" N; -1: it is called otherwise. */
static int number_behind(const char *name, const char *prefix) {
    const size_t length = strlen(prefix);
    return strncmp(name, prefix, length) == 0 && name[length] >= '0' && name[length] <= '9' ? atoi(name + length) : -1;
}

static bool computes(hwloc_obj_t pci) {
    static const char *const prefixes[] = {"cuda", "nvml", "rsmi", "ze"};
    for (hwloc_obj_t os = pci->io_first_child; os != NULL; os = os->next_sibling)
        for (size_t p = 0; p < sizeof prefixes / sizeof *prefixes; p++)
            if (os->name != NULL && number_behind(os->name, prefixes[p]) >= 0)
                return true;
    const unsigned class = pci->attr->pcidev.class_id;
    /* A VGA controller may be a server's console; NVIDIA's are GPUs. */
    return class == 0x0302 || (class >> 8 == 0x03 && pci->attr->pcidev.vendor_id == 0x10de);
}

static void add_gpu(const hwloc_view *view, hwloc_obj_t obj) {
    found_device device = device_at(view, obj, TOPOLOGY_GPU);
    int counted = -1; /* by the driver, in the order of addresses */
    for (hwloc_obj_t os = obj->io_first_child; os != NULL; os = os->next_sibling) {
        if (os->name == NULL)
            continue;
        if (device.node.number < 0)
            device.node.number = number_behind(os->name, "cuda");
        if (counted < 0)
            counted = number_behind(os->name, "nvml");
        if (device.node.name[0] == '\0')
            snprintf(device.node.name, sizeof device.node.name, "%s", info_of(os, "GPUModel"));
    }
    if (device.node.number < 0)
        device.node.number = counted;
    set_index(obj, found_add(view->found, device));
}

/* A card with both is known by its InfiniBand name, which is what NCCL uses. */
static void add_card(const hwloc_view *view, hwloc_obj_t obj) {
    found_device device = device_at(view, obj, TOPOLOGY_CARD);
    for (hwloc_obj_t os = obj->io_first_child; os != NULL; os = os->next_sibling) {
        const hwloc_obj_osdev_type_t type = os->attr->osdev.type;
        const bool fabric = type == HWLOC_OBJ_OSDEV_OPENFABRICS;
        if (os->name == NULL || !(fabric || (type == HWLOC_OBJ_OSDEV_NETWORK && device.node.name[0] == '\0')))
            continue;
        snprintf(device.node.name, sizeof device.node.name, "%s", os->name);
        device.port = view->live ? port_speed(os->name, type) : 0;
    }
    set_index(obj, found_add(view->found, device));
}

static void add_devices(const hwloc_view *view) {
    hwloc_obj_t obj = NULL;
    while ((obj = hwloc_get_next_pcidev(view->machine, obj)) != NULL) {
        const struct hwloc_pcidev_attr_s *pci = &obj->attr->pcidev;
        if ((obj->subtype != NULL && strcmp(obj->subtype, "NVSwitch") == 0) ||
            (pci->class_id == 0x0680 && pci->vendor_id == 0x10de))
            set_index(obj, found_add(view->found, device_at(view, obj, TOPOLOGY_NVSWITCH)));
        else if (computes(obj))
            add_gpu(view, obj);
        else if (pci->class_id >> 8 == 0x02)
            add_card(view, obj);
    }
}

/* ---- NVLinks ---- */

/* GPUs stand in the matrix as devices of the operating system, processors as packages. -1: something else. */
static int device_in_matrix(const hwloc_view *view, hwloc_obj_t obj) {
    if (obj == NULL)
        return -1;
    if (obj->type == HWLOC_OBJ_OS_DEVICE)
        obj = obj->parent;
    if (obj->type == HWLOC_OBJ_PCI_DEVICE)
        return index_of(obj);
    return hwloc_obj_type_is_normal(obj->type) || hwloc_obj_type_is_memory(obj->type) ? numa_near(view, obj) : -1;
}

static void add_matrix(const hwloc_view *view, const struct hwloc_distances_s *matrix) {
    const unsigned n = matrix->nbobjs;
    double *pairs = memory_allocate((size_t)n * n, sizeof *pairs), largest = 0;
    for (unsigned a = 0; a < n; a++) {
        double sum = 0;
        for (unsigned b = 0; b < n; b++)
            if (a != b)
                sum += pairs[a * n + b] = (double)matrix->values[a * n + b] / 1000; /* hwloc: MB/s */
        int device = device_in_matrix(view, matrix->objs[a]);
        if (device >= 0 && view->found->devices[device].node.kind == TOPOLOGY_GPU && sum > largest)
            largest = sum;
    }
    const facts_nvlink_rate rate = facts_nvlink_signalled(pairs, (int)(n * n), largest);
    for (unsigned a = 0; a < n; a++)
        for (unsigned b = 0; b < n; b++) {
            int from = device_in_matrix(view, matrix->objs[a]), to = device_in_matrix(view, matrix->objs[b]);
            const double links = pairs[a * n + b] / rate.signalling;
            if (links > 0 && from >= 0 && to >= 0 && from != to)
                found_add_nvlinks(view->found, from, to, (int)(links + 0.5), links * rate.carried);
        }
    free(pairs);
}

static void add_all_nvlinks(const hwloc_view *view) {
    struct hwloc_distances_s *matrix = NULL;
    unsigned count = 1;
    if (hwloc_distances_get_by_name(view->machine, "NVLinkBandwidth", &count, &matrix, 0) != 0 || count == 0)
        return;
    add_matrix(view, matrix);
    hwloc_distances_release(view->machine, matrix);
}

/* ---- loading ---- */

/* What hwloc asks OpenCL and X displays says nothing about links; PCI devices it finds in /sys as well as through
 * libpciaccess, which keeps memory. */
static const char *const unused[] = {"opencl", "gl", "pci"};

static bool load(hwloc_view *view, const char *path, error *e) {
    if (path != NULL && hwloc_topology_set_xml(view->machine, path) != 0)
        return error_set(e, EXIT_USAGE, "%s: hwloc %s cannot read it: %s", path, HWLOC_VERSION, strerror(errno));
    hwloc_topology_set_io_types_filter(view->machine, HWLOC_TYPE_FILTER_KEEP_ALL);
    for (size_t i = 0; path == NULL && i < sizeof unused / sizeof *unused; i++)
        hwloc_topology_set_components(view->machine, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, unused[i]);
    if (hwloc_topology_load(view->machine) == 0)
        return true;
    if (path == NULL)
        return error_set(e, EXIT_LAUNCH, "this machine: hwloc cannot look at it: %s", strerror(errno));
    return error_set(e, EXIT_USAGE, "%s: hwloc %s cannot read it; is it whole, and written by hwloc?", path,
                     HWLOC_VERSION);
}

bool topology_from_hwloc(const char *path, found_machine *m, error *e) {
    hwloc_view view = {.found = m, .live = path == NULL};
    check(hwloc_topology_init(&view.machine) == 0, "hwloc_topology_init failed");
    const bool good = load(&view, path, e);
    if (good) {
        add_sockets(&view);
        add_numa_nodes(&view);
        add_devices(&view);
        add_all_nvlinks(&view);
    }
    hwloc_topology_destroy(view.machine);
    return good;
}
