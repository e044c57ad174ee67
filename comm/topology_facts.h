/* What files do not say about links. The numbers are those by which NCCL (2.28 to 2.30) counts what a link carries, so
 * that predictions compare with what NCCL reports; GB/s of one direction. */
#ifndef FSDP_COMM_TOPOLOGY_FACTS_H
#define FSDP_COMM_TOPOLOGY_FACTS_H

/* What a transfer between two GPUs through an Intel root complex takes of the PCIe links on its way, relative to its
 * own bytes. */
#define FACTS_RELAY_COST 1.2

/* width: lanes, 0: not known (counted as 16). gigatransfers: per lane and second, 0: not known (counted as 8). */
double facts_pci(int width, double gigatransfers);

/* The same from the GB/s that hwloc gives: lanes times the bits that remain after line coding. */
double facts_pci_coded(double coded);

/* One NVLink of a GPU with compute capability sm / 10; 0: not known (counted as the commonest, 20). */
double facts_nvlink(int sm);

/* hwloc gives the signalling rate of all links between two devices together. What one link is follows from the rates
 * of a machine: all are multiples of it, and no GPU has more links than its generation. */
typedef struct facts_nvlink_rate {
    double signalling, carried; /* GB/s of one link */
    int most;                   /* links of a GPU */
} facts_nvlink_rate;

/* pairs: the rates in GB/s between two devices, 0 where there are no links; largest: the largest sum over one GPU's
 * links. */
facts_nvlink_rate facts_nvlink_signalled(const double *pairs, int count, double largest);

/* Between two NUMA nodes. vendor: CPUID's text or "" ; family and model: CPUID's numbers; architecture: "x86_64",
 * "arm64", "aarch64", "ppc64", "ppc64le". */
double facts_socket(const char *architecture, const char *vendor, int family, int model);

#endif
