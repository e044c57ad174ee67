#include "settings.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace simcuda {

namespace {

int environment_number(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

size_t environment_bytes(const char *name, size_t otherwise) {
    const char *text = getenv(name);
    if (!text)
        return otherwise;
    char *unit;
    size_t bytes = (size_t)strtoull(text, &unit, 10);
    const int shift = *unit == 'G' ? 30 : *unit == 'M' ? 20 : *unit == 'K' ? 10 : 0;
    return bytes << shift;
}

settings read() {
    settings s;
    s.memory = environment_bytes("SIMCUDA_MEMORY", (size_t)8 << 30);
    s.pinned = environment_bytes("SIMCUDA_PINNED", SIZE_MAX);
    s.devices = environment_number(
        "SIMCUDA_DEVICES", environment_number("OMPI_COMM_WORLD_LOCAL_SIZE", environment_number("MPI_LOCALNRANKS", 1)));
    s.architecture = environment_number("SIMCUDA_ARCHITECTURE", 80);
    s.driver = environment_number("SIMCUDA_DRIVER", 13000);
    s.races = environment_number("SIMCUDA_RACES", 1) != 0;
    return s;
}

} // namespace

const settings &environment() {
    static const settings s = read();
    return s;
}

size_t shared_limit() {
    switch (environment().architecture) {
    case 80:
        return 163 * 1024;
    case 86:
    case 89:
        return 99 * 1024;
    default:
        return 227 * 1024;
    }
}

} // namespace simcuda
