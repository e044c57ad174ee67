#include "shared.h"

#include "block.h"
#include "report.h"
#include "settings.h"
#include "shadow.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <deque>
#include <elf.h>
#include <link.h>
#include <memory>

namespace simcuda {

namespace {

/* The thread-local variables of one module, for one host thread. */
struct module_block {
    uintptr_t begin, end;
    std::vector<cell> cells;
    std::deque<shared_array> arrays; /* by address; addresses of elements are kept by callers */
};

struct shared_state {
    std::deque<module_block> modules;
    char *dynamic = nullptr; /* of the most bytes that a block may have, and as many again, which nobody may touch */
    std::vector<cell> dynamic_cells;
    shared_array dynamic_array = {0, 0, nullptr, "dynamic shared memory"};
    const shared_array *latest = nullptr;
};
shared_state &shared() {
    static thread_local shared_state state;
    return state;
}

enum : size_t { DYNAMIC_BYTES = 256 * 1024 };

std::vector<char> file_contents(const char *path) {
    std::vector<char> bytes;
    FILE *file = fopen(path, "rb");
    if (!file)
        return bytes;
    char part[1 << 16];
    for (size_t n; (n = fread(part, 1, sizeof part, file)) > 0;)
        bytes.insert(bytes.end(), part, part + n);
    fclose(file);
    return bytes;
}

/* Empty for the guard that a compiler puts beside an array of a class type: kernels may touch those. */
std::string variable_name(const char *mangled) {
    if (strncmp(mangled, "_ZGV", 4) == 0)
        return "";
    int status;
    char *full = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
    std::string name = full ? full : mangled;
    free(full);
    const size_t colons = name.rfind("::");
    return colons == std::string::npos ? name : name.substr(colons + 2);
}

/* Adds the thread-local symbols of an ELF file. */
void read_symbols(const char *path, module_block &m) {
    const std::vector<char> file = file_contents(path);
    if (file.size() < sizeof(ElfW(Ehdr)))
        return;
    const auto *header = reinterpret_cast<const ElfW(Ehdr) *>(file.data());
    const auto *sections = reinterpret_cast<const ElfW(Shdr) *>(file.data() + header->e_shoff);
    for (const unsigned wanted : {SHT_SYMTAB, SHT_DYNSYM}) { /* a stripped module still has the second */
        for (unsigned s = 0; s < header->e_shnum; s++) {
            if (sections[s].sh_type != wanted)
                continue;
            const auto *symbols = reinterpret_cast<const ElfW(Sym) *>(file.data() + sections[s].sh_offset);
            const char *names = file.data() + sections[sections[s].sh_link].sh_offset;
            for (size_t i = 0; i < sections[s].sh_size / sizeof *symbols; i++) {
                const ElfW(Sym) &symbol = symbols[i];
                if (ELF64_ST_TYPE(symbol.st_info) != STT_TLS || symbol.st_shndx == SHN_UNDEF || symbol.st_size == 0)
                    continue;
                const uintptr_t begin = m.begin + symbol.st_value;
                m.arrays.push_back({begin, begin + symbol.st_size, m.cells.data() + (begin - m.begin) / 2,
                                    variable_name(names + symbol.st_name)});
            }
        }
        if (!m.arrays.empty())
            break;
    }
    std::sort(m.arrays.begin(), m.arrays.end(),
              [](const shared_array &a, const shared_array &b) { return a.begin < b.begin; });
}

struct search {
    uintptr_t address;
    bool found;
};

int visit_module(dl_phdr_info *info, size_t, void *state) {
    search *s = static_cast<search *>(state);
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_TLS)
            continue;
        const uintptr_t begin = (uintptr_t)info->dlpi_tls_data, bytes = info->dlpi_phdr[i].p_memsz;
        if (!begin || s->address - begin >= bytes)
            continue;
        shared().modules.push_back({begin, begin + bytes, std::vector<cell>(bytes / 2 + 1), {}});
        read_symbols(info->dlpi_name[0] ? info->dlpi_name : "/proc/self/exe", shared().modules.back());
        s->found = true;
        return 1;
    }
    return 0;
}

module_block *module_of(uintptr_t address) {
    for (module_block &m : shared().modules)
        if (address - m.begin < m.end - m.begin)
            return &m;
    search s = {address, false};
    dl_iterate_phdr(visit_module, &s);
    return s.found ? &shared().modules.back() : nullptr;
}

/* The last array that begins at or before the address. */
const shared_array *array_before(const module_block &m, uintptr_t address) {
    auto next = std::upper_bound(m.arrays.begin(), m.arrays.end(), address,
                                 [](uintptr_t value, const shared_array &a) { return value < a.begin; });
    return next == m.arrays.begin() ? nullptr : &*(next - 1);
}

} // namespace

void shared_begin(size_t dynamic_bytes) {
    shared_state &s = shared();
    if (!s.dynamic) {
        s.dynamic = static_cast<char *>(aligned_alloc(1024, 2 * DYNAMIC_BYTES));
        s.dynamic_cells.resize(DYNAMIC_BYTES / 2);
    }
    s.dynamic_array.begin = (uintptr_t)s.dynamic;
    s.dynamic_array.end = s.dynamic_array.begin + dynamic_bytes;
    s.dynamic_array.cells = s.dynamic_cells.data();
    s.latest = &s.dynamic_array;
}

void shared_poison(size_t dynamic_bytes) {
    memset(shared().dynamic, 0xff, dynamic_bytes);
}

const shared_array *shared_find(uintptr_t address) {
    shared_state &s = shared();
    if (address - s.latest->begin < s.latest->end - s.latest->begin)
        return s.latest;
    const shared_array *a = &s.dynamic_array;
    if (address - a->begin >= a->end - a->begin) {
        const module_block *m = module_of(address);
        a = m ? array_before(*m, address) : nullptr;
        if (!a || address >= a->end)
            return nullptr;
    }
    s.latest = a;
    return a;
}

std::string shared_miss(uintptr_t address) {
    shared_state &s = shared();
    const shared_array *a = nullptr;
    if (address - (uintptr_t)s.dynamic < 2 * DYNAMIC_BYTES)
        a = &s.dynamic_array;
    else if (const module_block *m = module_of(address))
        a = array_before(*m, address);
    return a ? format("%zu bytes behind the end of the shared array %s of %zu bytes", (size_t)(address - a->end),
                      a->name.c_str(), (size_t)(a->end - a->begin))
             : "";
}

void shared_forget() {
    shared_state &s = shared();
    std::fill(s.dynamic_cells.begin(), s.dynamic_cells.end(), cell{});
    for (module_block &m : s.modules)
        std::fill(m.cells.begin(), m.cells.end(), cell{});
}

} // namespace simcuda

void *simcuda_dynamic_shared(void) {
    return simcuda::shared().dynamic;
}
