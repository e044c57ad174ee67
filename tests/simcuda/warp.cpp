/* Functions at which the lanes of a warp meet: barriers, shuffles, votes, reductions. */
#include "block.h"

#include "omission.h"
#include "report.h"

#include <algorithm>
#include <cstring>

namespace simcuda {

namespace {

/* The lanes of `mask` have one more common barrier behind them. */
void order_lanes(device_thread *lanes, unsigned mask) {
    device_block &b = *running_block;
    if (b.time >= CELL_LATEST_STAMP - 1)
        report(who(*running_thread) + ": more barriers in one block than simcuda can count");
    const uint32_t time = ++b.time;
    const unsigned first = lanes[0].number, count = std::min(b.count - first, (unsigned)WARP_LANES);
    const unsigned all = count == WARP_LANES ? 0xffffffffu : (1u << count) - 1u;
    if ((mask & all) == all) {
        for (unsigned lane = 0; lane < count; lane++)
            lanes[lane].stamp = lanes[lane].warp_stamp = time;
        return;
    }
    if (b.partial.empty())
        b.partial.resize((size_t)b.count * WARP_LANES);
    uint32_t known[WARP_LANES] = {0}; /* what any of them knows of each lane, now all know */
    for (unsigned lane = 0; lane < count; lane++)
        if (mask >> lane & 1u)
            for (unsigned other = 0; other < count; other++)
                known[other] = std::max({known[other], b.partial[(first + lane) * WARP_LANES + other],
                                         other == lane ? 0u : lanes[lane].warp_stamp});
    for (unsigned lane = 0; lane < count; lane++)
        if (mask >> lane & 1u) {
            lanes[lane].stamp = time;
            for (unsigned other = 0; other < count; other++)
                b.partial[(first + lane) * WARP_LANES + other] = mask >> other & 1u ? time : known[other];
        }
}

struct shuffle_payload {
    uint64_t bits, result;
    int operand, width;
    simcuda_shuffle kind;
};

/* PTX shfl.sync: lanes of one segment of `width`; a source outside of it gives the lane's own value. */
int shuffle_source(const shuffle_payload &p, int lane) {
    const int segment = lane & ~(p.width - 1);
    switch (p.kind) {
    case SIMCUDA_SHUFFLE_INDEX:
        return segment + (p.operand & (p.width - 1));
    case SIMCUDA_SHUFFLE_XOR:
        return (lane ^ p.operand) < segment + p.width ? lane ^ p.operand : lane;
    case SIMCUDA_SHUFFLE_DOWN:
        return lane + p.operand < segment + p.width ? lane + p.operand : lane;
    default:
        return lane - p.operand >= segment ? lane - p.operand : lane;
    }
}

void complete_shuffle(device_thread *lanes, unsigned mask) {
    for (int lane = 0; lane < WARP_LANES; lane++) {
        if (!(mask >> lane & 1u))
            continue;
        shuffle_payload &p = *static_cast<shuffle_payload *>(lanes[lane].payload);
        const int source = shuffle_source(p, lane);
        if (!(mask >> source & 1u))
            report(format("%s shuffles from lane %d, which is not in the mask %08x", who(lanes[lane]).c_str(), source,
                          mask));
        p.result = static_cast<shuffle_payload *>(lanes[source].payload)->bits;
    }
}

struct ballot_payload {
    bool predicate;
    unsigned result;
};

void complete_ballot(device_thread *lanes, unsigned mask) {
    unsigned votes = 0;
    for (int lane = 0; lane < WARP_LANES; lane++)
        if (mask >> lane & 1u && static_cast<ballot_payload *>(lanes[lane].payload)->predicate)
            votes |= 1u << lane;
    for (int lane = 0; lane < WARP_LANES; lane++)
        if (mask >> lane & 1u)
            static_cast<ballot_payload *>(lanes[lane].payload)->result = votes;
}

struct reduce_payload {
    long long value;
    simcuda_reduction kind;
};

void complete_reduce(device_thread *lanes, unsigned mask) {
    long long result = 0;
    bool first = true;
    for (int lane = 0; lane < WARP_LANES; lane++) {
        if (!(mask >> lane & 1u))
            continue;
        const reduce_payload &p = *static_cast<reduce_payload *>(lanes[lane].payload);
        result = first                          ? p.value
                 : p.kind == SIMCUDA_REDUCE_ADD ? result + p.value
                 : p.kind == SIMCUDA_REDUCE_MIN ? std::min(result, p.value)
                                                : std::max(result, p.value);
        first = false;
    }
    for (int lane = 0; lane < WARP_LANES; lane++)
        if (mask >> lane & 1u)
            static_cast<reduce_payload *>(lanes[lane].payload)->value = result;
}

} // namespace

void warp_meet(meeting where, unsigned mask, void *payload, const char *file, int line,
               void (*complete)(device_thread *lanes, unsigned mask)) {
    device_block &b = *running_block;
    device_thread &self = *running_thread;
    device_thread *lanes = warp_of(self);
    const unsigned first = lanes[0].number, lane = self.number - first,
                   count = std::min(b.count - first, (unsigned)WARP_LANES);
    if (!(mask >> lane & 1u))
        report(format("%s is lane %u, which is not in its mask %08x, at %s:%d", who(self).c_str(), lane, mask, file,
                      line));
    if (count < WARP_LANES && where != MEET_MMA && where != MEET_LDMATRIX)
        mask &= (1u << count) - 1u; /* as the hardware: lanes that were never there need not come */
    self.where = where;
    self.mask = mask;
    self.file = file;
    self.line = line;
    self.payload = payload;
    for (unsigned i = 0; i < WARP_LANES; i++) {
        if (!(mask >> i & 1u) || i == lane)
            continue;
        if (i >= count || lanes[i].state != device_thread::WAITING || lanes[i].where != where ||
            lanes[i].mask != mask || lanes[i].line != line ||
            (lanes[i].file != file && strcmp(lanes[i].file, file) != 0)) {
            thread_wait();
            return;
        }
    }
    if (complete)
        complete(lanes, mask);
    for (unsigned i = 0; i < count; i++)
        if (mask >> i & 1u) {
            lanes[i].where = MEET_NOWHERE;
            if (i != lane) {
                lanes[i].state = device_thread::RUNNABLE;
                b.runnable.push_back(lanes[i].number);
            }
        }
}

} // namespace simcuda

using namespace simcuda;

void simcuda_warp_barrier(unsigned mask, const char *file, int line) {
    if (!simcuda_omits_barrier(file, line))
        warp_meet(MEET_WARP_BARRIER, mask, nullptr, file, line, order_lanes);
}

uint64_t simcuda_shuffle_bits(unsigned mask, uint64_t bits, int operand, int width, simcuda_shuffle kind,
                              const char *file, int line) {
    if (width < 1 || width > WARP_LANES || (width & (width - 1)) != 0)
        report(who(*running_thread) + format(": a shuffle of width %d, at %s:%d", width, file, line));
    shuffle_payload p = {bits, 0, operand, width, kind};
    warp_meet(MEET_SHUFFLE, mask, &p, file, line, complete_shuffle);
    return p.result;
}

unsigned simcuda_ballot(unsigned mask, int predicate, const char *file, int line) {
    ballot_payload p = {predicate != 0, 0};
    warp_meet(MEET_BALLOT, mask, &p, file, line, complete_ballot);
    return p.result;
}

long long simcuda_warp_reduce(unsigned mask, long long value, simcuda_reduction kind, const char *file, int line) {
    reduce_payload p = {value, kind};
    warp_meet(MEET_REDUCE, mask, &p, file, line, complete_reduce);
    return p.value;
}

/* Lanes that have neither left nor wait elsewhere: on the hardware any subset of them; here the lane alone. */
unsigned simcuda_active_mask(void) {
    return 1u << (running_thread->number % WARP_LANES);
}
