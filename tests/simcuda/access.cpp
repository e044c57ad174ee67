#include "access.h"

#include "counters.h"
#include "cuda_instructions.h"
#include "fiber.h"
#include "intent.h"
#include "memory.h"
#include "omission.h"
#include "report.h"
#include "shared.h"
#include "simcuda.h"

#include <cstring>
#include <link.h>

namespace simcuda {

namespace {

const char *verb(access_kind kind) {
    return kind == ACCESS_READ ? "reads" : kind == ACCESS_ATOMIC ? "updates" : "writes";
}

[[noreturn]] __attribute__((noinline)) void refuse(const accessor &a, access_kind kind, size_t bytes,
                                                   const std::string &what) {
    const std::string subject = a.thread ? who(*a.thread) : format("work %s", a.name);
    report(format("%s %s %zu byte%s: %s%s", subject.c_str(), verb(kind), bytes, bytes == 1 ? "" : "s", what.c_str(),
                  a.site ? (", at " + source_line(a.site)).c_str() : ""));
}

/* Constants of the program: what it maps from a file without the right to write. */
struct constant_search {
    uintptr_t address;
    bool found;
};
int visit_constants(dl_phdr_info *info, size_t, void *state) {
    constant_search *s = static_cast<constant_search *>(state);
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) &segment = info->dlpi_phdr[i];
        const bool constant =
            (segment.p_type == PT_LOAD && !(segment.p_flags & PF_W)) || segment.p_type == PT_GNU_RELRO;
        if (constant && s->address - (info->dlpi_addr + segment.p_vaddr) < segment.p_memsz)
            s->found = true;
    }
    return s->found;
}
bool is_constant(uintptr_t address) {
    constant_search s = {address, false};
    dl_iterate_phdr(visit_constants, &s);
    return s.found;
}

/* Device memory: bounds, state of the bytes, races. */
void device_access(const accessor &a, uintptr_t address, size_t bytes, access_kind kind, bool unwritten_allowed) {
    const range within = allocation_near(address);
    if (!within.end || within.end - address < bytes)
        refuse(a, kind, bytes,
               within.end ? "the last of them behind the end: " + describe_device_address(address)
                          : describe_device_address(address));
    uint8_t *state = memory.state + (address - memory.base);
    const bool reads = kind == ACCESS_READ || kind == ACCESS_ATOMIC;
    for (size_t i = 0; i < bytes; i++) {
        if (state[i] & BYTE_FORBIDDEN)
            refuse(a, kind, bytes, "forbidden by the test: " + describe_device_address(address + i));
        if (reads && !unwritten_allowed && !(state[i] & BYTE_WRITTEN))
            refuse(a, kind, bytes, "never written: " + describe_device_address(address + i));
    }
    size_t first_time = bytes;
    if (memory.cells)
        first_time = cells_access(a, memory.cells + (address - memory.base) / 2, address, bytes, kind, nullptr);
    if (kind != ACCESS_READ)
        memset(state, BYTE_WRITTEN, bytes);
    if (simcuda_omits_waits())
        intent_touch(*a.owner, address, bytes, kind != ACCESS_READ);
    if (counting)
        counters_access(a, address, bytes, kind, first_time);
}

/* Neither device memory nor the thread's own stack. */
void other_access(const accessor &a, uintptr_t address, size_t bytes, access_kind kind) {
    const std::vector<uint64_t> &arguments = running_block->launch->arguments;
    if (kind == ACCESS_READ && address - (uintptr_t)arguments.data() < arguments.size() * sizeof arguments[0])
        return;
    if (const shared_array *array = shared_find(address)) {
        if (array->name.empty())
            return;
        if (array->end - address < bytes)
            refuse(a, kind, bytes, "the last of them behind the end of the shared array " + array->name);
        cells_access(a, array->cells + (address - (array->begin & ~(uintptr_t)1)) / 2, address, bytes, kind, array);
        return;
    }
    const std::string shared = shared_miss(address);
    if (!shared.empty())
        refuse(a, kind, bytes, shared);
    if ((kind == ACCESS_READ && is_constant(address)) || is_mapped((void *)address, bytes))
        return;
    refuse(a, kind, bytes,
           address < 4096 ? format("a null pointer (%p)", (void *)address)
           : is_pinned((void *)address, 1)
               ? format("pinned host memory (%p) that is not mapped for the device", (void *)address)
               : format("host memory (%p)", (void *)address));
}

} // namespace

void thread_access(device_thread &t, const void *p, size_t bytes, access_kind kind, const void *site) {
    const uintptr_t address = (uintptr_t)p;
    if (address - t.stack < FIBER_STACK_BYTES)
        return;
    const accessor a = accessor_of(t, site);
    if (in_device(address))
        device_access(a, address, bytes, kind, false);
    else
        other_access(a, address, bytes, kind);
}

void work_access(const void *p, size_t bytes, access_kind kind, bool unwritten_allowed, const char *name) {
    if (bytes == 0 || !running_work)
        return;
    const accessor a = accessor_of(*running_work, name);
    if (!in_device((uintptr_t)p))
        refuse(a, kind, bytes, format("%p, which is not device memory", p));
    device_access(a, (uintptr_t)p, bytes, kind, unwritten_allowed);
}

} // namespace simcuda

using namespace simcuda;

static inline void touch(const void *p, size_t bytes, access_kind kind, const void *site) {
    if (device_thread *t = running_thread)
        thread_access(*t, p, bytes, kind, site);
}

/* What -fsanitize=thread calls before each access. */
#define SITE __builtin_return_address(0)
#define ACCESS_FUNCTIONS(bytes)                                                                                        \
    void __tsan_read##bytes(void *p) {                                                                                 \
        touch(p, bytes, ACCESS_READ, SITE);                                                                            \
    }                                                                                                                  \
    void __tsan_write##bytes(void *p) {                                                                                \
        touch(p, bytes, ACCESS_WRITE, SITE);                                                                           \
    }                                                                                                                  \
    void __tsan_volatile_read##bytes(void *p) {                                                                        \
        touch(p, bytes, ACCESS_READ, SITE);                                                                            \
    }                                                                                                                  \
    void __tsan_volatile_write##bytes(void *p) {                                                                       \
        touch(p, bytes, ACCESS_WRITE, SITE);                                                                           \
    }                                                                                                                  \
    void __tsan_unaligned_read##bytes(void *p) {                                                                       \
        touch(p, bytes, ACCESS_READ, SITE);                                                                            \
    }                                                                                                                  \
    void __tsan_unaligned_write##bytes(void *p) {                                                                      \
        touch(p, bytes, ACCESS_WRITE, SITE);                                                                           \
    }                                                                                                                  \
    void __tsan_unaligned_volatile_read##bytes(void *p) {                                                              \
        touch(p, bytes, ACCESS_READ, SITE);                                                                            \
    }                                                                                                                  \
    void __tsan_unaligned_volatile_write##bytes(void *p) {                                                             \
        touch(p, bytes, ACCESS_WRITE, SITE);                                                                           \
    }
extern "C" {
ACCESS_FUNCTIONS(1)
ACCESS_FUNCTIONS(2)
ACCESS_FUNCTIONS(4)
ACCESS_FUNCTIONS(8)
ACCESS_FUNCTIONS(16)
void __tsan_read_range(void *p, size_t bytes) {
    touch(p, bytes, ACCESS_READ, SITE);
}
void __tsan_write_range(void *p, size_t bytes) {
    touch(p, bytes, ACCESS_WRITE, SITE);
}
void __tsan_vptr_update(void **, void *) {
}
void __tsan_vptr_read(void **) {
}
void __tsan_func_entry(void *) {
}
void __tsan_func_exit(void) {
}
void __tsan_init(void) {
}
char __tsan_atomic8_load(const volatile char *p, int) { /* host code asks so whether a static variable is there */
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

/* Calls to memcpy and the like from .cu files come here: cuda_device.h. */
void *simcuda_memcpy(void *destination, const void *source, size_t bytes) {
    touch(source, bytes, ACCESS_READ, SITE);
    touch(destination, bytes, ACCESS_WRITE, SITE);
    return memcpy(destination, source, bytes);
}
void *simcuda_memmove(void *destination, const void *source, size_t bytes) {
    touch(source, bytes, ACCESS_READ, SITE);
    touch(destination, bytes, ACCESS_WRITE, SITE);
    return memmove(destination, source, bytes);
}
void *simcuda_memset(void *destination, int value, size_t bytes) {
    touch(destination, bytes, ACCESS_WRITE, SITE);
    return memset(destination, value, bytes);
}

/* What -fsanitize=bounds calls before an index that a fixed array does not have, renamed by cuda_device.h so that the
 * rest of the program may have the real one. */
struct bounds_location {
    const char *file;
    uint32_t line, column;
};
static void out_of_bounds(const bounds_location *location, uintptr_t index) {
    const std::string text =
        format("index %zd is outside of a fixed array, at %s:%u", (ptrdiff_t)index, location->file, location->line);
    report(running_thread ? who(*running_thread) + ": " + text : text);
}
void simcuda___ubsan_handle_out_of_bounds(bounds_location *location, uintptr_t index) {
    out_of_bounds(location, index);
}
void simcuda___ubsan_handle_out_of_bounds_abort(bounds_location *location, uintptr_t index) {
    out_of_bounds(location, index);
}
}

void simcuda_before_atomic(void *address, size_t bytes) {
    if ((uintptr_t)address % bytes != 0)
        report(who(*running_thread) +
               format(": an atomic update of %zu bytes at %p, which is not aligned", bytes, address));
    touch(address, bytes, ACCESS_ATOMIC, SITE);
}

static void check_alignment(const void *p, const char *instruction) {
    if ((uintptr_t)p % 16 != 0)
        report(who(*running_thread) + format(": %s of %p, which is not aligned to 16 bytes", instruction, p));
}

vector_128 load_128(const void *p) {
    vector_128 v;
    if (running_thread)
        check_alignment(p, "load_128");
    touch(p, sizeof v, ACCESS_READ, SITE);
    memcpy(&v, p, sizeof v);
    return v;
}

void store_128(void *p, vector_128 v) {
    if (running_thread)
        check_alignment(p, "store_128");
    touch(p, sizeof v, ACCESS_WRITE, SITE);
    memcpy(p, &v, sizeof v);
}

void simcuda_read(const void *p, size_t bytes, const char *name) {
    work_access(p, bytes, ACCESS_READ, false, name);
}

void simcuda_move(const void *p, size_t bytes, const char *name) {
    work_access(p, bytes, ACCESS_READ, true, name);
}

void simcuda_write(void *p, size_t bytes, const char *name) {
    work_access(p, bytes, ACCESS_WRITE, false, name);
}
