#include "engine/device/cuda/peak.h"

#include <math.h>
#include <stdio.h>

/* FLOP a clock of one multiprocessor. */
static const struct {
    int major, minor, half, single;
} rates[] = {
    {8, 0, 2048, 128}, {8, 6, 1024, 256}, {8, 9, 1024, 256}, {9, 0, 4096, 256}, {10, 0, 8192, 256}, {10, 3, 8192, 256},
};
enum { RATES = sizeof rates / sizeof *rates };

device_peak peak_of(const multiprocessors *m, dtype type, bool tf32) {
    device_peak peak = {.flops = NAN};
    for (int i = 0; i < RATES; i++) {
        if (rates[i].major != m->major || rates[i].minor != m->minor)
            continue;
        const int each = type != DTYPE_F32 ? rates[i].half : tf32 ? rates[i].half / 2 : rates[i].single;
        peak.flops = (double)m->count * m->hertz * (double)each;
        snprintf(peak.basis, sizeof peak.basis, "%d multiprocessors x %.2f GHz x %d", m->count, 1e-9 * m->hertz, each);
    }
    return peak;
}
