#include "memory.h"

#include "error.h"
#include "random.h"
#include "report.h"
#include "settings.h"
#include "shadow.h"
#include "simcuda.h"
#include "work.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sys/mman.h>
#include <unistd.h>

namespace simcuda {

namespace {

enum : size_t {
    ALIGNMENT = 256,
    GAP = 4096,                     /* between allocations, nobody's */
    POISON_LIMIT = (size_t)64 << 20 /* larger allocations are not filled, only known to be unwritten */
};

typedef std::map<uintptr_t, size_t> ranges; /* begin -> bytes, disjoint */

ranges &allocations() {
    static ranges &all = *new ranges; /* never destroyed: progress.h */
    return all;
}
ranges &pinned() {
    static ranges &all = *new ranges; /* never destroyed: progress.h */
    return all;
}

ranges &mapped() {
    static ranges &all = *new ranges; /* never destroyed: progress.h */
    return all;
}
size_t allocated_bytes;

size_t pinned_bytes() {
    size_t bytes = 0;
    for (const auto &range : pinned())
        bytes += range.second;
    return bytes;
}

void *reserve(size_t bytes) {
    void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        perror("simcuda: reserving addresses for device memory");
        exit(1);
    }
    return p;
}

/* Zeroes the bytes; whole pages go back to the system. */
void give_back(void *p, size_t bytes) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)p, end = begin + bytes,
                    first = (begin + page - 1) / page * page, last = end / page * page;
    if (first >= last) {
        memset(p, 0, bytes);
        return;
    }
    memset(p, 0, first - begin);
    madvise((void *)first, last - first, MADV_DONTNEED);
    memset((void *)last, 0, end - last);
}

/* The range in the map that holds the address. */
range find(const ranges &all, uintptr_t address) {
    auto next = all.upper_bound(address);
    if (next == all.begin())
        return {0, 0};
    --next;
    return address - next->first < next->second ? range{next->first, next->first + next->second} : range{0, 0};
}

size_t rounded(size_t bytes) {
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* First fit. 0: no room. */
uintptr_t find_room(size_t bytes) {
    uintptr_t begin = memory.base + GAP;
    for (const auto &a : allocations()) {
        if (a.first - begin >= bytes + GAP)
            return begin;
        begin = a.first + rounded(a.second) + GAP;
    }
    return memory.base + memory.bytes - begin >= bytes + GAP ? begin : 0;
}

} // namespace

device_memory memory;
range latest_allocation;

void memory_open() {
    if (memory.bytes)
        return;
    /* A little more than the device has, for the gaps. */
    const size_t bytes = environment().memory + environment().memory / 8 + ((size_t)64 << 20);
    memory.base = (uintptr_t)reserve(bytes);
    memory.state = static_cast<uint8_t *>(reserve(bytes));
    if (environment().races)
        memory.cells = static_cast<cell *>(reserve(bytes / 2 * sizeof(cell)));
    memory.bytes = bytes;
}

range allocation_of(uintptr_t address) {
    return find(allocations(), address);
}

std::string describe_device_address(uintptr_t address) {
    const range inside = allocation_of(address);
    if (inside.end)
        return format("byte %zu of the allocation of %zu bytes at %p", (size_t)(address - inside.begin),
                      (size_t)(inside.end - inside.begin), (void *)inside.begin);
    auto next = allocations().upper_bound(address);
    if (next == allocations().begin())
        return format("%p, in device memory that is not allocated", (void *)address);
    --next;
    return format("%zu bytes behind the end of the allocation of %zu bytes at %p",
                  (size_t)(address - next->first - next->second), next->second, (void *)next->first);
}

bool is_pinned(const void *p, size_t bytes) {
    const range r = find(pinned(), (uintptr_t)p);
    return r.end && r.end - (uintptr_t)p >= bytes;
}

bool is_mapped(const void *p, size_t bytes) {
    const range r = find(mapped(), (uintptr_t)p);
    return r.end && r.end - (uintptr_t)p >= bytes;
}

} // namespace simcuda

using namespace simcuda;

cudaError_t cudaMalloc(void **address, size_t bytes) {
    hold lock;
    refuse_inside_work("cudaMalloc");
    if (!address)
        return give(cudaErrorInvalidValue);
    *address = nullptr;
    if (bytes == 0)
        return cudaSuccess;
    memory_open();
    if (bytes > environment().memory - allocated_bytes)
        return give(cudaErrorMemoryAllocation);
    const uintptr_t begin = find_room(rounded(bytes));
    if (!begin)
        return give(cudaErrorMemoryAllocation);
    allocations()[begin] = bytes;
    allocated_bytes += rounded(bytes);
    if (bytes <= POISON_LIMIT) /* NaN in every format of 16 bits or more, a negative index */
        memset((void *)begin, 0xff, bytes);
    *address = (void *)begin;
    return cudaSuccess;
}

cudaError_t cudaFree(void *address) {
    hold lock;
    refuse_inside_work("cudaFree");
    if (!address)
        return cudaSuccess;
    auto a = allocations().find((uintptr_t)address);
    if (a == allocations().end())
        return give(cudaErrorInvalidValue);
    work_finish_all(); /* as the real one does */
    const size_t size = rounded(a->second), offset = a->first - memory.base;
    give_back(address, size);
    give_back(memory.state + offset, size);
    if (memory.cells)
        give_back(memory.cells + offset / 2, size / 2 * sizeof(cell));
    allocated_bytes -= size;
    allocations().erase(a);
    latest_allocation = {0, 0};
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    hold lock;
    if (!free_bytes || !total_bytes)
        return give(cudaErrorInvalidValue);
    *total_bytes = environment().memory;
    *free_bytes = environment().memory - allocated_bytes;
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **address, size_t bytes, unsigned flags) {
    hold lock;
    if (!address)
        return give(cudaErrorInvalidValue);
    *address = nullptr;
    if (bytes == 0)
        return cudaSuccess;
    void *p =
        pinned_bytes() + bytes <= environment().pinned ? aligned_alloc(4096, (bytes + 4095) / 4096 * 4096) : nullptr;
    if (!p)
        return give(cudaErrorMemoryAllocation);
    memset(p, 0xff, bytes);
    pinned()[(uintptr_t)p] = bytes;
    if (flags & cudaHostAllocMapped)
        mapped()[(uintptr_t)p] = bytes;
    *address = p;
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **address, size_t bytes) {
    return cudaHostAlloc(address, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *address) {
    hold lock;
    if (!address)
        return cudaSuccess;
    if (!pinned().count((uintptr_t)address))
        return give(cudaErrorInvalidValue);
    work_finish_all();
    pinned().erase((uintptr_t)address);
    mapped().erase((uintptr_t)address);
    free(address);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *address, size_t bytes, unsigned) {
    hold lock;
    if (!address || bytes == 0)
        return give(cudaErrorInvalidValue);
    const auto next = pinned().lower_bound((uintptr_t)address);
    if (find(pinned(), (uintptr_t)address).end || (next != pinned().end() && next->first < (uintptr_t)address + bytes))
        return give(cudaErrorHostMemoryAlreadyRegistered);
    pinned()[(uintptr_t)address] = bytes;
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *address) {
    hold lock;
    if (!pinned().count((uintptr_t)address))
        return give(cudaErrorHostMemoryNotRegistered);
    pinned().erase((uintptr_t)address);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *p) {
    hold lock;
    if (!attributes)
        return give(cudaErrorInvalidValue);
    *attributes = {cudaMemoryTypeUnregistered, -1, nullptr, nullptr};
    if (in_device((uintptr_t)p))
        *attributes = {cudaMemoryTypeDevice, 0, const_cast<void *>(p), nullptr};
    else if (is_pinned(p, 1))
        *attributes = {cudaMemoryTypeHost, 0, const_cast<void *>(p), const_cast<void *>(p)};
    return cudaSuccess;
}

bool simcuda_is_device(const void *p) {
    return in_device((uintptr_t)p);
}

static uint8_t *states_of(void *p, size_t bytes, const char *who) {
    const uintptr_t address = (uintptr_t)p;
    const range r = allocation_of(address);
    if (!r.end || r.end - address < bytes)
        report(format("%s: %zu bytes at %p are not within one allocation", who, bytes, p));
    return memory.state + (address - memory.base);
}

void simcuda_forbid(void *p, size_t bytes) {
    hold lock;
    uint8_t *state = states_of(p, bytes, "simcuda_forbid");
    for (size_t i = 0; i < bytes; i++)
        state[i] |= BYTE_FORBIDDEN;
}

void simcuda_allow(void *p, size_t bytes) {
    hold lock;
    uint8_t *state = states_of(p, bytes, "simcuda_allow");
    for (size_t i = 0; i < bytes; i++)
        state[i] = state[i] & (uint8_t)~BYTE_FORBIDDEN;
}

void simcuda_uninitialise(void *p, size_t bytes) {
    hold lock;
    uint8_t *state = states_of(p, bytes, "simcuda_uninitialise");
    for (size_t i = 0; i < bytes; i++)
        state[i] = state[i] & (uint8_t)~BYTE_WRITTEN;
    memset(p, 0xff, bytes);
}
