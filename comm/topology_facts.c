#include "comm/topology_facts.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static const struct {
    double gigatransfers;
    double coded;   /* GB/s of one lane after line coding (8b/10b, then 128b/130b) */
    double carried; /* GB/s that transfers reach */
} generations[] = {{2.5, 0.25, 0.1875},      {5, 0.5, 0.375},          {8, 64 / 65.0, 0.75},
                   {16, 2 * 64 / 65.0, 1.5}, {32, 4 * 64 / 65.0, 3.0}, {64, 8 * 64 / 65.0, 6.0}};
enum { GENERATIONS = sizeof generations / sizeof *generations, ASSUMED_WIDTH = 16, ASSUMED_GENERATION = 2 };

static bool near(double a, double b) {
    return fabs(a - b) <= 0.004 * fabs(b); /* hwloc rounds a lane to 6 digits; generations are further apart */
}

double facts_pci(int width, double gigatransfers) {
    int known = ASSUMED_GENERATION;
    for (int g = 0; g < GENERATIONS; g++)
        if (near(gigatransfers, generations[g].gigatransfers))
            known = g;
    return (width > 0 ? width : ASSUMED_WIDTH) * generations[known].carried;
}

double facts_pci_coded(double coded) {
    static const int widths[] = {1, 2, 4, 8, 12, 16, 32};
    for (int g = 0; g < GENERATIONS; g++)
        for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
            if (near(coded, widths[w] * generations[g].coded))
                return widths[w] * generations[g].carried;
    return coded * generations[ASSUMED_GENERATION].carried / generations[ASSUMED_GENERATION].coded;
}

static const struct {
    int sm; /* from here on */
    double carried;
} nvlinks[] = {{100, 40.1}, {90, 20.6}, {87, 20}, {86, 12}, {70, 20}, {60, 18}};

double facts_nvlink(int sm) {
    for (size_t i = 0; i < sizeof nvlinks / sizeof *nvlinks; i++)
        if (sm >= nvlinks[i].sm)
            return nvlinks[i].carried;
    return 20;
}

facts_nvlink_rate facts_nvlink_signalled(const double *pairs, int count, double largest) {
    static const facts_nvlink_rate rates[] = {{20, 18, 4},         {14.0625, 12, 4}, {25, 20, 12},
                                              {26.5625, 20.6, 18}, {50, 40.1, 18},   {53.125, 40.1, 18}};
    for (size_t r = 0; r < sizeof rates / sizeof *rates; r++) {
        bool fits = largest <= rates[r].most * rates[r].signalling * 1.001;
        for (int i = 0; fits && i < count; i++) {
            double links = pairs[i] / rates[r].signalling;
            fits = fabs(links - round(links)) <= 0.002 * links;
        }
        if (fits)
            return rates[r];
    }
    return (facts_nvlink_rate){.signalling = 25, .carried = 20, .most = 12}; /* links of many kinds: four fifths */
}

double facts_socket(const char *architecture, const char *vendor, int family, int model) {
    static const struct {
        int model; /* of family 6, from here on */
        double carried;
    } intel[] = {{207, 40}, {143, 22}, {85, 10}, {0, 6}};
    if (strncmp(architecture, "ppc64", 5) == 0)
        return 32;
    if (strcmp(vendor, "AuthenticAMD") == 0)
        return 16;
    if (strcmp(vendor, "GenuineIntel") == 0 && family == 6)
        for (size_t i = 0; i < sizeof intel / sizeof *intel; i++)
            if (model >= intel[i].model)
                return intel[i].carried;
    return 6; /* ARM; the least of all for what is not known */
}
