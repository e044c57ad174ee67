#include "omission.h"

#include "simcuda.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

struct barrier_filter {
    bool (*keeps)(void *state, const char *file, int line);
    void *state;
} filter;

const char *const names[OMISSION_COUNT] = {"stream_wait", "host_wait", "streams"};

/* The one call to leave out: SIMCUDA_OMIT=kind:number. */
struct omitted_call {
    int kind = OMISSION_COUNT;
    uint64_t number = 0;
    omitted_call() {
        const char *text = getenv("SIMCUDA_OMIT");
        const char *colon = text ? strchr(text, ':') : nullptr;
        for (int k = 0; colon && k < OMISSION_COUNT; k++)
            if (strlen(names[k]) == (size_t)(colon - text) && memcmp(text, names[k], (size_t)(colon - text)) == 0)
                kind = k;
        if (!text)
            return;
        number = colon ? strtoull(colon + 1, nullptr, 10) : 0;
        if (kind == OMISSION_COUNT || number == 0) {
            fprintf(stderr, "simcuda: SIMCUDA_OMIT=%s: accepted are stream_wait:N, host_wait:N and streams:N\n", text);
            _Exit(2);
        }
    }
};

uint64_t calls[OMISSION_COUNT];

const omitted_call &omitted() {
    static const omitted_call call;
    return call;
}

} // namespace

bool simcuda_omits_barrier(const char *file, int line) {
    return filter.keeps && !filter.keeps(filter.state, file, line);
}

void simcuda_filter_barriers(bool (*keeps)(void *state, const char *file, int line), void *state) {
    filter = {keeps, state};
}

bool simcuda_omits_next(simcuda_omission kind) {
    const uint64_t next = calls[kind] + 1, number = omitted().number;
    return omitted().kind == kind && (kind == OMIT_STREAMS ? next >= number : next == number);
}

bool simcuda_omits(simcuda_omission kind, const char *call, bool orders) {
    const bool omits = simcuda_omits_next(kind);
    calls[kind]++;
    if (omits)
        fprintf(stderr, "simcuda omits %s number %llu, %s%s\n", names[kind], (unsigned long long)calls[kind], call,
                orders ? "" : ", which orders nothing");
    return omits;
}
