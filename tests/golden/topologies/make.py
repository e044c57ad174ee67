#!/usr/bin/env python3
"""Writes the machines that test_topology.c, test_ring.c and launch_topology.sh read: each once as NCCL's topology XML
(NAME.nccl.xml) and once as hwloc's (NAME.hwloc.xml), with devices in different orders. None is a copy of a real machine's
file. Run it in this folder."""

INTEL, AMD, POWER = ("x86_64", "GenuineIntel", 6, 85), ("x86_64", "AuthenticAMD", 23, 49), ("ppc64le", "IBM", 0, 0)
NVSWITCH, PROCESSOR = "nvswitch", "processor"
LANE = {8: 8 * 128 / 130 / 8, 16: 16 * 128 / 130 / 8, 32: 32 * 128 / 130 / 8}


class Machine:
    """numa: a list of devices for each NUMA node; a device is ("gpu", bus, gt, width), ("card", bus, gt, width, name,
    Mb/s) or ("switch", bus, gt, width, [devices]). GPUs are numbered in the order of their addresses. links: (gpu, gpu or
    NVSWITCH or PROCESSOR, count)."""

    def __init__(self, processor, sm, numa, links):
        self.processor, self.sm, self.numa, self.links = processor, sm, numa, links
        self.gpus = sorted(d[1] for node in numa for d in self.all(node) if d[0] == "gpu")
        self.cards = sorted(d[1] for node in numa for d in self.all(node) if d[0] == "card")

    def all(self, devices):
        for d in devices:
            yield d
            if d[0] == "switch":
                yield from self.all(d[4])

    # ---- NCCL ----

    def nccl_links(self, gpu):
        for a, b, count in self.links:
            if gpu not in (a, b):
                continue
            other = b if a == gpu else a
            if other == NVSWITCH:
                for switch in range(6 if count >= 6 else 1):
                    yield f"0000:c{switch}:00.0", count // (6 if count >= 6 else 1), "0x068000"
            elif other == PROCESSOR:
                yield "0000:00:00.0", count, "0x068001"
            else:
                yield self.gpus[other], count, "0x030200"

    def nccl_device(self, d, indent):
        pci = {"gpu": "0x030200", "card": "0x020700", "switch": "0x060400"}[d[0]]
        head = f'{indent}<pci busid="{d[1]}" class="{pci}" link_speed="{d[2]:.1f} GT/s PCIe" link_width="{d[3]}">\n'
        inner = indent + "  "
        if d[0] == "switch":
            body = "".join(self.nccl_device(child, inner) for child in reversed(d[4]))
        elif d[0] == "card":
            body = (f'{inner}<nic>\n{inner}  <net name="{d[4]}" dev="{self.cards.index(d[1])}" speed="{d[5]}" '
                    f'port="1" guid="0x{self.cards.index(d[1]):x}" maxconn="131072" gdr="1"/>\n{inner}</nic>\n')
        else:
            number = self.gpus.index(d[1])
            links = "".join(f'{inner}  <nvlink target="{target}" count="{count}" tclass="{tclass}"/>\n'
                            for target, count, tclass in self.nccl_links(number))
            body = f'{inner}<gpu dev="{number}" sm="{self.sm}" rank="{number}" gdr="1">\n{links}{inner}</gpu>\n'
        return head + body + f"{indent}</pci>\n"

    def nccl(self):
        text = '<system version="1">\n'
        arch, vendor, family, model = self.processor
        for number, devices in reversed(list(enumerate(self.numa))):
            text += (f'  <cpu numaid="{number}" affinity="{0xff << 8 * number:08x}" arch="{arch.replace("le", "")}" '
                     f'vendor="{vendor}" familyid="{family}" modelid="{model}">\n')
            text += "".join(self.nccl_device(d, "    ") for d in reversed(devices)) + "  </cpu>\n"
        return text + "</system>\n"

    # ---- hwloc ----

    def number(self):
        self.index += 1
        return self.index

    def pci(self, kind, bus, pci_class, speed, more=""):
        return (f'<object type="{kind}" gp_index="{self.number()}" {more}pci_busid="{bus}" '
                f'pci_type="{pci_class} [10de:0000] [0000:0000] a1" pci_link_speed="{speed:.6f}"')

    def port(self, bus, speed, depth, body, indent):
        """A bridge with what is below it."""
        domain, number = bus[:4], int(bus[5:7], 16)
        head = self.pci("Bridge", bus, "0604", speed,
                        f'bridge_type="1-1" depth="{depth}" bridge_pci="{domain}:[{number:02x}-{number:02x}]" ')
        return f"{indent}{head}>\n{body}{indent}</object>\n"

    def hwloc_device(self, d, depth, indent):
        speed = LANE[d[2]] * d[3]
        inner = indent + "  "
        if d[0] == "switch":
            below = "".join(self.hwloc_device(child, depth + 2, inner + "  ") for child in d[4])
            upstream = self.port(d[1], speed, depth + 1, below, inner)
        elif d[0] == "card":
            upstream = (f'{inner}{self.pci("PCIDev", d[1], "0207", speed)}>\n'
                        f'{inner}  <object type="OSDev" gp_index="{self.number()}" name="{d[4]}" osdev_type="3"/>\n'
                        f"{inner}</object>\n")
        else:
            index = self.number()
            self.os[self.gpus.index(d[1])] = index
            upstream = (f'{inner}{self.pci("PCIDev", d[1], "0302", speed)}>\n'
                        f'{inner}  <object type="OSDev" gp_index="{index}" name="nvml{self.gpus.index(d[1])}" '
                        f'subtype="NVML" osdev_type="5"/>\n{inner}</object>\n')
        # Above each device, and above each switch, is a port of the root complex or of the switch over it.
        self.ports += 1
        return self.port(f"0000:{0xd0 + self.ports // 32:02x}:{self.ports % 32:02x}.0", speed, depth, upstream, indent)

    def hwloc_node(self, number, devices):
        arch, vendor, family, model = self.processor
        sets = f'cpuset="0x{1 << number:08x}" complete_cpuset="0x{1 << number:08x}" ' \
               f'nodeset="0x{1 << number:08x}" complete_nodeset="0x{1 << number:08x}"'
        text = f'    <object type="Package" os_index="{number}" {sets} gp_index="{self.number()}">\n'
        self.packages.append(self.index)
        for name, value in ("CPUVendor", vendor), ("CPUFamilyNumber", family), ("CPUModelNumber", model):
            text += f'      <info name="{name}" value="{value}"/>\n'
        text += (f'      <object type="NUMANode" os_index="{number}" {sets} gp_index="{self.number()}" '
                 'local_memory="68719476736"/>\n')
        text += (f'      <object type="Core" os_index="{number}" {sets} gp_index="{self.number()}">\n'
                 f'        <object type="PU" os_index="{number}" {sets} gp_index="{self.number()}"/>\n      </object>\n')
        for d in devices:
            text += (f'      <object type="Bridge" gp_index="{self.number()}" bridge_type="0-1" depth="0" '
                     f'bridge_pci="0000:[00-ff]">\n{self.hwloc_device(d, 1, " " * 8)}      </object>\n')
        return text + "    </object>\n"

    def matrix(self):
        signalling = {60: 20000, 70: 25000, 80: 25000, 90: 26562}[self.sm]
        objects = [f"OSDev:{self.os[g]}" for g in range(len(self.gpus))]
        place = {NVSWITCH: len(objects)}
        if any(b == NVSWITCH for _, b, _ in self.links):
            objects.append(f"PCIDev:{self.switch}")
        nodes = {g: n for n, node in enumerate(self.numa)
                 for g in (self.gpus.index(d[1]) for d in self.all(node) if d[0] == "gpu")}
        if any(b == PROCESSOR for _, b, _ in self.links):
            packages = len(objects)
            objects += [f"Package:{p}" for p in self.packages]
        values = [[0] * len(objects) for _ in objects]
        for a, b, count in self.links:
            to = packages + nodes[a] if b == PROCESSOR else place.get(b, b)
            values[a][to] = values[to][a] = count * signalling
        text = f'  <distances2hetero nbobjs="{len(objects)}" kind="25" name="NVLinkBandwidth">\n'
        line = " ".join(objects) + " "
        text += f'    <indexes length="{len(line)}">{line}</indexes>\n'
        for row in values:
            line = " ".join(map(str, row)) + " "
            text += f'    <u64values length="{len(line)}">{line}</u64values>\n'
        return text + "  </distances2hetero>\n"

    def hwloc(self):
        self.index, self.ports, self.os, self.packages = 0, 0, {}, []
        everything = f"0x{(1 << len(self.numa)) - 1:08x}"
        text = ('<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n'
                '<topology version="2.0">\n'
                f'  <object type="Machine" os_index="0" cpuset="{everything}" complete_cpuset="{everything}" '
                f'allowed_cpuset="{everything}" nodeset="{everything}" complete_nodeset="{everything}" '
                f'allowed_nodeset="{everything}" gp_index="{self.number()}">\n'
                f'    <info name="Architecture" value="{self.processor[0]}"/>\n')
        text += "".join(self.hwloc_node(number, devices) for number, devices in enumerate(self.numa))
        if any(b == NVSWITCH for _, b, _ in self.links):
            self.switch = self.number()
            text += (f'    <object type="Bridge" gp_index="{self.number()}" bridge_type="0-1" depth="0" '
                     'bridge_pci="0000:[c0-c5]">\n'
                     f'      <object type="PCIDev" gp_index="{self.switch}" subtype="NVSwitch" pci_busid="0000:c0:00.0" '
                     'pci_type="0680 [10de:1af1] [0000:0000] a1" pci_link_speed="0.000000"/>\n    </object>\n')
        text += "  </object>\n"
        if self.links:
            text += self.matrix()
        return text + "</topology>\n"


def gpu(bus, gt=8, width=16):
    return ("gpu", f"0000:{bus}.0", gt, width)


def card(bus, name, gt=16, width=16, speed=100000):
    return ("card", f"0000:{bus}.0", gt, width, name, speed)


def switch(bus, devices, gt=8, width=16):
    return ("switch", f"0000:{bus}.0", gt, width, devices)


def pair(number, gt=8, more=()):
    return switch(f"{number}0:00", [gpu(f"{number}1:00", gt), gpu(f"{number}2:00", gt), *more], gt)


CUBE = [(0, 1, 1), (0, 2, 1), (0, 3, 2), (0, 4, 2), (1, 2, 2), (1, 3, 1), (1, 5, 2), (2, 3, 2), (2, 6, 1), (3, 7, 1),
        (4, 5, 1), (4, 6, 1), (4, 7, 2), (5, 6, 2), (5, 7, 1), (6, 7, 2)]

MACHINES = {
    # Eight GPUs, four NVLinks inside each half and one or two across.
    "cube8": Machine(INTEL, 70, [[pair(1), pair(2)], [pair(3), pair(4)]], CUBE),
    # NVLinks that close one ring, in an order that addresses do not tell; PCIe adds to it.
    "ring6": Machine(INTEL, 70, [[pair(1), pair(2)], [pair(3)]],
                     [(0, 3, 1), (1, 3, 1), (1, 4, 1), (2, 4, 1), (2, 5, 1), (0, 5, 1)]),
    # Sixteen GPUs on NVSwitches, a card beside every two.
    "switched16": Machine(AMD, 80, [[pair(2 * n + 1, 16, [card(f"{2 * n + 1}3:00", f"mlx5_{2 * n}", speed=200000)]),
                                     pair(2 * n + 2, 16, [card(f"{2 * n + 2}3:00", f"mlx5_{2 * n + 1}", speed=200000)])]
                                    for n in range(4)], [(g, NVSWITCH, 12) for g in range(16)]),
    # A card for each GPU, no two of which share a switch.
    "rails4": Machine(AMD, 80, [[switch(f"{2 * n + 1}0:00", [gpu(f"{2 * n + 1}1:00", 16), card(f"{2 * n + 1}2:00",
                                 f"mlx5_{2 * n}", speed=200000)], 16),
                                 switch(f"{2 * n + 2}0:00", [gpu(f"{2 * n + 2}1:00", 16), card(f"{2 * n + 2}2:00",
                                 f"mlx5_{2 * n + 1}", speed=200000)], 16)] for n in range(2)],
                      [(g, NVSWITCH, 12) for g in range(4)]),
    # Four sockets, no NVLink.
    "sockets4": Machine(INTEL, 80, [[pair(n)] for n in range(1, 5)], []),
    # The card is on another NUMA node than the GPUs.
    "far_card": Machine(AMD, 80, [[gpu("11:00", 16), gpu("12:00", 16)], [card("21:00", "mlx5_0", 8)]], [(0, 1, 4)]),
    # Links of 16, 8, 16 and 4 lanes.
    "unequal4": Machine(AMD, 80, [[gpu("11:00", 16), gpu("12:00", 16, 8), gpu("13:00", 16), gpu("14:00", 16, 4)]], []),
    # NVLinks between GPUs and processors.
    "processor4": Machine(POWER, 60, [[gpu("11:00", 8, 8), gpu("12:00", 8, 8)], [gpu("21:00", 8, 8), gpu("22:00", 8, 8)]],
                          [(0, 1, 2), (2, 3, 2)] + [(g, PROCESSOR, 2) for g in range(4)]),
    "one": Machine(INTEL, 80, [[gpu("11:00"), card("12:00", "mlx5_0", 8)]], []),
    "none": Machine(INTEL, 80, [[card("12:00", "mlx5_0", 8)], []], []),
}

if __name__ == "__main__":
    for name, machine in MACHINES.items():
        with open(f"{name}.nccl.xml", "w") as out:
            out.write(machine.nccl())
        with open(f"{name}.hwloc.xml", "w") as out:
            out.write(machine.hwloc())
