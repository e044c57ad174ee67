#include "races.h"

#include "memory.h"
#include "report.h"
#include "shared.h"

#include <algorithm>
#include <unordered_map>

namespace simcuda {

namespace {

/* Cells read by works that no event orders: serials of the earlier ones. */
std::unordered_map<const cell *, std::vector<uint32_t>> &other_readers() {
    static auto &all = *new std::unordered_map<const cell *, std::vector<uint32_t>>; /* never destroyed: progress.h */
    return all;
}
bool any_other_readers; /* asked at every write */

size_t bytes_of(uint64_t mask) {
    return (mask & 1) + (mask >> 1);
}

bool work_ordered(uint32_t serial, const accessor &a) {
    if (serial < serials_settled)
        return true;
    const work *earlier = work_of_serial(serial);
    return !earlier || earlier == a.owner || ordered_before(*earlier, *a.owner);
}

std::string place(uintptr_t address, const shared_array *array) {
    return array ? format("byte %zu of the shared array %s", (size_t)(address - array->begin), array->name.c_str())
                 : describe_device_address(address);
}

std::string subject(const accessor &a) {
    return a.thread ? who(*a.thread) : format("work %s", a.name);
}

const char *verb(access_kind kind) {
    return kind == ACCESS_READ ? "reads" : kind == ACCESS_ATOMIC ? "updates" : "writes";
}

std::string site_text(const accessor &a) {
    return a.site ? ", at " + source_line(a.site) : "";
}

/* `entry`: the earlier access, which was a write or not. */
[[noreturn]] __attribute__((noinline)) void report_race(const accessor &a, access_kind kind, uint64_t entry,
                                                        bool earlier_wrote, uintptr_t address,
                                                        const shared_array *array) {
    const uint32_t serial = cell_serial(entry), thread = cell_thread(entry);
    const char *did = earlier_wrote ? "wrote" : "read";
    std::string other;
    const work *w = work_of_serial(serial);
    if (!array && w && w != a.owner) {
        other =
            format("which the work %s %s; no event, stream or synchronisation orders the two", w->name.c_str(), did);
    } else if (!array &&
               (serial != cell_serial(a.key) || (!earlier_wrote && (entry & CELL_READERS) == CELL_GRID_READERS))) {
        other = format("which another block of the same kernel %s", did);
    } else {
        const uint3 index = running_block->threads[thread].index;
        other = format("which thread (%u,%u,%u)%s %s with no barrier between", index.x, index.y, index.z,
                       !earlier_wrote && (entry & CELL_READERS) ? " and others" : "", did);
    }
    report(format("race: %s %s %s, %s%s", subject(a).c_str(), verb(kind), place(address, array).c_str(), other.c_str(),
                  site_text(a).c_str()));
}

[[noreturn]] __attribute__((noinline)) void report_unwritten(const accessor &a, access_kind kind, uint64_t entry,
                                                             uintptr_t address, const shared_array *array) {
    const bool own = cell_serial(entry) == cell_serial(a.key);
    const char *what = own && (entry & CELL_IN_FLIGHT) ? "where an asynchronous copy is still under way"
                                                       : "which no thread of the block has written";
    report(format("%s %s %s, %s%s", subject(a).c_str(), verb(kind), place(address, array).c_str(), what,
                  site_text(a).c_str()));
}

/* Whether the readers that a cell of this block remembers are all ordered before what the accessor does now. */
bool readers_ordered(uint64_t entry, const device_thread &t) {
    const uint32_t stamp = cell_stamp(entry);
    switch (entry & CELL_READERS) {
    case CELL_ONE_READER:
        return thread_ordered(entry, t);
    case CELL_WARP_READERS:
        return stamp < running_block->barrier_time ||
               (cell_thread(entry) / WARP_LANES == t.number / WARP_LANES && stamp < t.warp_stamp);
    case CELL_BLOCK_READERS:
        return stamp < running_block->barrier_time;
    default:
        return false;
    }
}

/* The read entry of a cell after one more read. */
uint64_t with_reader(cell &c, const accessor &a, uint64_t mask, bool shared) {
    const uint64_t entry = c.read, mine = a.key | mask;
    const uint32_t serial = cell_serial(entry), own = cell_serial(a.key);
    if (serial != own) {
        if (shared || entry == 0)
            return mine;
        if (serial >= a.first_serial)
            return mine | CELL_GRID_READERS;
        if (!work_ordered(serial, a)) {
            other_readers()[&c].push_back(serial);
            any_other_readers = true;
        }
        return mine;
    }
    const uint64_t readers = entry & CELL_READERS;
    if (!a.thread || (readers == CELL_ONE_READER && cell_thread(entry) == a.thread->number))
        return mine | (entry & (CELL_MASK | CELL_READERS));
    if (readers != CELL_GRID_READERS && readers_ordered(entry, *a.thread))
        return mine;
    const bool same_warp = cell_thread(entry) / WARP_LANES == a.thread->number / WARP_LANES;
    const uint64_t level = std::max(readers, (uint64_t)(same_warp ? CELL_WARP_READERS : CELL_BLOCK_READERS));
    const uint32_t stamp = std::max(cell_stamp(entry), cell_stamp(a.key));
    return cell_key(own, a.thread->number, stamp) | level | mask | (entry & CELL_MASK);
}

/* Whether the last write is ordered before the access. */
bool write_ordered(uint64_t entry, const accessor &a, access_kind kind, bool shared) {
    const uint32_t serial = cell_serial(entry);
    if (serial < a.first_serial)
        return shared || work_ordered(serial, a);
    if (kind == ACCESS_ATOMIC && (entry & CELL_ATOMIC))
        return true;
    if (serial != cell_serial(a.key))
        return shared;
    return !a.thread || thread_ordered(entry, *a.thread);
}

bool reads_ordered(const cell &c, const accessor &a, bool shared) {
    const uint64_t entry = c.read;
    const uint32_t serial = cell_serial(entry);
    if (serial >= a.first_serial) {
        if (serial != cell_serial(a.key))
            return shared;
        return !a.thread || readers_ordered(entry, *a.thread);
    }
    return shared || work_ordered(serial, a);
}

/* An earlier reader kept aside that is not ordered before the accessor; 0: none. */
uint32_t unordered_other_reader(const cell &c, const accessor &a) {
    const auto others = other_readers().find(&c);
    if (others != other_readers().end())
        for (const uint32_t serial : others->second)
            if (!work_ordered(serial, a))
                return serial;
    return 0;
}

size_t note_access(const accessor &a, cell *cells, uintptr_t address, size_t bytes, access_kind kind,
                   const shared_array *array) {
    const bool shared = array != nullptr;
    const uint32_t own = cell_serial(a.key);
    const uintptr_t end = address + bytes;
    size_t first_time = 0;
    for (uintptr_t pair = address & ~(uintptr_t)1; pair < end; pair += 2, cells++) {
        uint64_t mask = CELL_MASK;
        if (pair < address)
            mask = 2;
        if (pair + 2 > end)
            mask &= 1;
        cell &c = *cells;
        const uint64_t written = c.write;
        const bool own_write = cell_serial(written) == own;
        if (shared && (kind == ACCESS_READ || kind == ACCESS_ATOMIC) && (!own_write || (mask & ~written)))
            report_unwritten(a, kind, written, pair, array);
        if (own_write && (written & CELL_IN_FLIGHT) && kind != ACCESS_ASYNC_LAND)
            report_unwritten(a, kind, written, pair, array);
        if ((written & mask) && !write_ordered(written, a, kind, shared))
            report_race(a, kind, written, true, pair, array);
        if (kind == ACCESS_READ) {
            first_time += cell_serial(c.read) < a.first_serial ? bytes_of(mask) : 0;
            if (c.read != (a.key | mask))
                c.read = with_reader(c, a, mask, shared);
            continue;
        }
        if ((c.read & mask) && !reads_ordered(c, a, shared))
            report_race(a, kind, c.read, false, pair, array);
        if (any_other_readers) {
            if (const uint32_t serial = unordered_other_reader(c, a))
                report_race(a, kind, cell_key(serial, 0, 0), false, pair, array);
            if (mask == CELL_MASK)
                other_readers().erase(&c);
        }
        first_time += cell_serial(written) < a.first_serial ? bytes_of(mask) : 0;
        c.write = a.key | mask | (own_write ? written & CELL_MASK : 0);
        if (kind == ACCESS_ATOMIC)
            c.write |= CELL_ATOMIC;
        if (kind == ACCESS_ASYNC_WRITE)
            c.write |= CELL_IN_FLIGHT;
        if (mask == CELL_MASK)
            c.read = 0;
    }
    return first_time;
}

/* The first write of a process, as the zeroing of all that it has allocated, has nothing to race with, and the next
 * access mostly comes when it is settled: its cells, eight times its bytes, are not touched before another comes. */
struct write_kept_aside {
    accessor a;
    cell *cells;
    uintptr_t address;
    size_t bytes; /* 0: there is none */
} first_write;

} // namespace

accessor accessor_of(device_thread &t, const void *site) {
    const device_block &b = *running_block;
    return {&t, nullptr, b.owner, cell_key(b.serial, t.number, t.stamp), b.first_serial, site};
}

accessor accessor_of(work &w, const char *name) {
    return {nullptr, name, &w, cell_key(w.serial, 0, 0), w.serial, nullptr};
}

void races_forget() {
    other_readers().clear();
    any_other_readers = false;
    first_write.bytes = 0;
}

size_t cells_access(const accessor &a, cell *cells, uintptr_t address, size_t bytes, access_kind kind,
                    const shared_array *array) {
    static bool first = true;
    const bool kept_aside = first && !a.thread && kind == ACCESS_WRITE;
    first = false;
    if (kept_aside) {
        first_write = {a, cells, address, bytes};
        return bytes;
    }
    if (first_write.bytes > 0) {
        const write_kept_aside w = first_write;
        first_write.bytes = 0;
        note_access(w.a, w.cells, w.address, w.bytes, ACCESS_WRITE, nullptr);
    }
    return note_access(a, cells, address, bytes, kind, array);
}

} // namespace simcuda
