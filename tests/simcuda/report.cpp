#include "report.h"

#include "block.h"
#include "random.h"
#include "simcuda.h"
#include "stream.h"
#include "work.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <unistd.h>

namespace simcuda {

namespace {

enum { MISUSE_EXIT_CODE = 86 };

/* Thrown to simcuda_catch. */
struct misuse {
    std::string text;
};
bool catching;

void forget() {
    work_forget();
    streams_forget();
    cudaGetLastError();
}

} // namespace

std::string format(const char *text, ...) {
    va_list arguments;
    va_start(arguments, text);
    char *formatted = nullptr;
    const int bytes = vasprintf(&formatted, text, arguments);
    va_end(arguments);
    std::string result = bytes < 0 ? text : formatted;
    free(formatted);
    return result;
}

std::string find_source_line(const void *address) {
    Dl_info info;
    if (!dladdr(address, &info) || !info.dli_fname)
        return format("%p", address);
    const size_t offset = (uintptr_t)address - (uintptr_t)info.dli_fbase - 1; /* of the call */
    const std::string command = format("addr2line -e '%s' 0x%zx 2>/dev/null", info.dli_fname, offset);
    char line[1024] = "";
    if (FILE *tool = popen(command.c_str(), "r")) {
        if (!fgets(line, sizeof line, tool))
            line[0] = 0;
        pclose(tool);
    }
    line[strcspn(line, " \n")] = 0;
    const char *name = strrchr(line, '/');
    name = name ? name + 1 : line;
    return name[0] == 0 || name[0] == '?' ? format("%s+0x%zx", info.dli_fname, offset) : name;
}

std::string source_line(const void *address) {
    static std::map<const void *, std::string> known; /* a test reports the same places often */
    std::string &line = known[address];
    if (line.empty())
        line = find_source_line(address);
    return line;
}

void report(const std::string &text) {
    if (running_thread)
        block_abandon(text);
    deliver(text);
}

bool is_catching() {
    return catching;
}

void deliver(const std::string &text) {
    if (catching) {
        forget(); /* now: the way up may free memory, which waits for what is queued */
        throw misuse{text};
    }
    fprintf(stderr, "simcuda: %s (SIMCUDA_SEED=%llu)\n", text.c_str(), (unsigned long long)random_sequence().seed);
    fflush(nullptr);
    _exit(MISUSE_EXIT_CODE);
}

} // namespace simcuda

using namespace simcuda;

void simcuda_refuse(const char *text, ...) {
    va_list arguments;
    va_start(arguments, text);
    char *formatted = nullptr;
    const int bytes = vasprintf(&formatted, text, arguments);
    va_end(arguments);
    report(bytes < 0 ? text : formatted);
}

bool simcuda_catch(void (*body)(void *state), void *state, char *text, size_t bytes) {
    bool caught = false;
    catching = true;
    try {
        body(state);
    } catch (const misuse &m) {
        caught = true;
        snprintf(text, bytes, "%s", m.text.c_str());
    }
    catching = false;
    return caught;
}

void simcuda_seed(uint64_t seed) {
    hold lock;
    forget();
    random_sequence() = {seed, seed};
}
