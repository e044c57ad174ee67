#include "progress.h"

#include "report.h"
#include "work.h"

#include <chrono>
#include <mutex>
#include <thread>

namespace simcuda {

std::atomic<uint64_t> calls_made;

namespace {

constexpr auto PATIENCE = std::chrono::milliseconds(50); /* without a call before work runs by itself */

/* Runs work until the host makes a call or none can go on. */
void run_while_quiet(uint64_t calls) {
    bool more = true;
    while (more && calls_made == calls) {
        const std::unique_lock<std::recursive_mutex> lock(simulator_lock(), std::try_to_lock);
        more = lock.owns_lock() && !is_catching() && work_progress();
    }
}

void watch() {
    for (uint64_t before = calls_made;;) {
        std::this_thread::sleep_for(PATIENCE);
        const uint64_t now = calls_made;
        if (now == before)
            run_while_quiet(now);
        before = now;
    }
}

} // namespace

void progress_start() {
    static const bool started = (std::thread(watch).detach(), true);
    (void)started;
}

} // namespace simcuda
