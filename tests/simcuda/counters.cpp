#include "counters.h"

#include "memory.h"
#include "simcuda.h"

#include <algorithm>
#include <unordered_map>

namespace simcuda {

bool counting;

namespace {

enum : uintptr_t { SECTOR = 32 };

/* An access of a thread: the n-th that it makes from this place of the code is part of one instruction of the warp with
 * the n-th of the other lanes. */
struct entry {
    uint32_t warp, occurrence;
    uintptr_t site, address;
    uint32_t bytes;
};

struct state {
    simcuda_counters sums;
    std::vector<entry> entries;                         /* of the running block */
    std::unordered_map<uint64_t, uint32_t> occurrences; /* of (thread, site) */
};
state &counters() {
    static state &s = *new state; /* never destroyed: progress.h */
    return s;
}

} // namespace

void counters_launch(const work &) {
    if (counting)
        counters().sums.launches++;
}

void counters_access(const accessor &a, uintptr_t address, size_t bytes, access_kind kind, size_t first_time) {
    state &s = counters();
    const bool reads = kind == ACCESS_READ || kind == ACCESS_ATOMIC, writes = kind != ACCESS_READ;
    s.sums.read_bytes += reads ? bytes : 0;
    s.sums.written_bytes += writes ? bytes : 0;
    (writes ? s.sums.distinct_written_bytes : s.sums.distinct_read_bytes) += first_time;
    if (!a.thread) {
        s.sums.sector_bytes += (address + bytes - 1) / SECTOR * SECTOR - address / SECTOR * SECTOR + SECTOR;
        return;
    }
    s.sums.accesses++;
    if (bytes == 16 && address % 16 == 0) {
        s.sums.wide_accesses++;
        s.sums.wide_bytes += 16;
    }
    const uint64_t place = (uint64_t)(uintptr_t)a.site * BLOCK_THREADS + a.thread->number;
    s.entries.push_back(
        {a.thread->number / (uint32_t)WARP_LANES, s.occurrences[place]++, (uintptr_t)a.site, address, (uint32_t)bytes});
}

void counters_block_end(const device_block &) {
    state &s = counters();
    if (s.entries.empty())
        return;
    std::sort(s.entries.begin(), s.entries.end(), [](const entry &a, const entry &b) {
        return a.warp != b.warp               ? a.warp < b.warp
               : a.site != b.site             ? a.site < b.site
               : a.occurrence != b.occurrence ? a.occurrence < b.occurrence
                                              : a.address < b.address;
    });
    uintptr_t next = 0; /* sectors of this instruction below here are counted */
    const entry *previous = nullptr;
    for (const entry &e : s.entries) {
        if (!previous || previous->warp != e.warp || previous->site != e.site || previous->occurrence != e.occurrence)
            next = 0;
        const uintptr_t first = std::max(next, e.address / SECTOR), last = (e.address + e.bytes - 1) / SECTOR;
        if (last >= first) {
            s.sums.sector_bytes += (last - first + 1) * SECTOR;
            next = last + 1;
        }
        previous = &e;
    }
    s.entries.clear();
    s.occurrences.clear();
}

} // namespace simcuda

using namespace simcuda;

void simcuda_counters_start(void) {
    hold lock;
    work_finish_all();
    counters() = state();
    counting = true;
}

simcuda_counters simcuda_counters_stop(void) {
    hold lock;
    work_finish_all();
    counting = false;
    return counters().sums;
}
