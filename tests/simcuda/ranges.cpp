#include "ranges.h"

#include "report.h"
#include "work.h"

#include "nvtx3/nvToolsExt.h"

#include <cstdio>
#include <cstdlib>

namespace simcuda {

namespace {

int depth;

/* A line per event, deeper ones farther to the right. */
void write(const char *event, const char *name) {
    static FILE *const file = [] {
        const char *path = getenv("SIMCUDA_RANGES");
        FILE *opened = path ? fopen(path, "w") : nullptr;
        if (path && !opened)
            report(format("SIMCUDA_RANGES=%s cannot be written", path));
        return opened; /* closed by the process's end */
    }();
    if (file)
        fprintf(file, "%*s%s %s\n", 4 * depth, "", event, name);
}

} // namespace

void ranges_note_work(const std::string &name) {
    write("work", name.c_str());
}

} // namespace simcuda

using namespace simcuda;

int nvtxRangePushA(const char *message) {
    hold lock;
    write("range", message);
    return depth++;
}

int nvtxRangePop(void) {
    hold lock;
    if (depth == 0)
        report("nvtxRangePop ends a range that never began");
    return --depth;
}
