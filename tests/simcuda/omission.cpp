#include "omission.h"

#include "simcuda.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

const char *const names[OMIT_COUNT] = {"cudaStreamWaitEvent",  "cudaStreamSynchronize", "cudaDeviceSynchronize",
                                       "cudaEventSynchronize", "cudaEventQuery",        "ncclCommInitRank"};

/* SIMCUDA_OMIT=call:number; 0: all of them. */
struct omitted_one {
    int call = OMIT_COUNT;
    uint64_t number = 0;
    omitted_one() {
        const char *text = getenv("SIMCUDA_OMIT");
        if (!text)
            return;
        const size_t length = strcspn(text, ":");
        for (int c = 0; c < OMIT_COUNT; c++)
            if (strlen(names[c]) == length && memcmp(text, names[c], length) == 0)
                call = c;
        char *end;
        number = strtoull(text[length] == ':' ? text + length + 1 : "x", &end, 10);
        if (call != OMIT_COUNT && *end == '\0')
            return;
        fprintf(stderr, "simcuda: SIMCUDA_OMIT=%s: a call that waits, a colon, and which of them (0: all)\n", text);
        _Exit(2);
    }
};

const omitted_one &omitted() {
    static const omitted_one call;
    return call;
}

uint64_t calls[OMIT_COUNT];

struct barrier_filter {
    bool (*keeps)(void *state, const char *file, int line);
    void *state;
} filter;

} // namespace

bool simcuda_omits_next(simcuda_waiting_call call) {
    return omitted().call == call && (omitted().number == 0 || omitted().number == calls[call] + 1);
}

bool simcuda_omits_waits(void) {
    return omitted().call < OMIT_COMMUNICATOR;
}

bool simcuda_omits(simcuda_waiting_call call) {
    const bool omits = simcuda_omits_next(call);
    calls[call]++;
    if (omits)
        fprintf(stderr, "simcuda omits %s %llu\n", names[call], (unsigned long long)calls[call]);
    return omits;
}

bool simcuda_omits_barrier(const char *file, int line) {
    return filter.keeps && !filter.keeps(filter.state, file, line);
}

void simcuda_filter_barriers(bool (*keeps)(void *state, const char *file, int line), void *state) {
    filter = {keeps, state};
}
