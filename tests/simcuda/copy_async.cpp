#include "copy_async.h"

#include "access.h"
#include "cuda_instructions.h"
#include "omission.h"
#include "random.h"
#include "report.h"
#include "shared.h"

#include <cstring>

namespace simcuda {

void copies_check_left(const device_thread &t) {
    if (!t.copies.empty())
        report(format("%s leaves while %zu of its asynchronous copies are under way: copy_async_commit and "
                      "copy_async_wait(0) are missing",
                      who(t).c_str(), t.copies.size()));
}

} // namespace simcuda

using namespace simcuda;

void copy_async_16(void *destination, const void *source, int source_bytes) {
    device_thread &t = *running_thread;
    const void *site = __builtin_return_address(0);
    async_copy copy = {(uintptr_t)destination, (uintptr_t)source, source_bytes == 0, {}, false, site};
    if (source_bytes != 0 && source_bytes != 16)
        report(who(t) + format(": copy_async_16 with source_bytes = %d; 16 and 0 are known", source_bytes));
    if (copy.shared % 16 != 0 || (!copy.zero_fill && copy.global % 16 != 0))
        report(who(t) + format(": copy_async_16 to %p from %p: not aligned to 16 bytes", destination, source));
    if (!shared_find(copy.shared))
        report(who(t) + format(": copy_async_16 to %p, which is not in shared memory", destination));
    if (!copy.zero_fill)
        thread_access(t, source, 16, ACCESS_READ, site);
    thread_access(t, destination, 16, ACCESS_ASYNC_WRITE, site);
    if (!copy.zero_fill && random_below(2)) {
        memcpy(copy.early, source, 16);
        copy.is_early = true;
    }
    t.copies.push_back(copy);
}

void copy_async_commit(void) {
    device_thread &t = *running_thread;
    size_t grouped = 0;
    for (const size_t n : t.groups)
        grouped += n;
    t.groups.push_back(t.copies.size() - grouped);
}

void simcuda_copy_async_wait(int groups, const char *file, int line) {
    if (simcuda_omits_barrier(file, line))
        return;
    device_thread &t = *running_thread;
    size_t landed = 0;
    while (t.groups.size() > (size_t)groups) {
        for (size_t i = 0; i < t.groups.front(); i++, landed++) {
            const async_copy &c = t.copies[landed];
            thread_access(t, (void *)c.shared, 16, ACCESS_ASYNC_LAND, c.site);
            if (c.zero_fill)
                memset((void *)c.shared, 0, 16);
            else
                memcpy((void *)c.shared, c.is_early ? (const void *)c.early : (const void *)c.global, 16);
        }
        t.groups.erase(t.groups.begin());
    }
    t.copies.erase(t.copies.begin(), t.copies.begin() + (ptrdiff_t)landed);
}
