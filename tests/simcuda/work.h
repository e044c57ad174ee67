/* Queued work and what it waits for.
 *
 * A piece of work waits for other pieces (the one before it on its stream, those of events); when all are done it may
 * run, and the seed picks among all that may. Each belongs to a chain (a stream, or a stream of one graph) and carries
 * a vector clock: for each chain, how many pieces of work of that chain are ordered before it. The host has a clock
 * too, which synchronisation advances. */
#ifndef SIMCUDA_WORK_H
#define SIMCUDA_WORK_H

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace simcuda {

typedef std::vector<uint64_t> vector_clock; /* by chain; missing entries are 0 */
void clock_join(vector_clock &clock, const vector_clock &other);

struct work : std::enable_shared_from_this<work> {
    std::string name;
    std::function<bool()> advance; /* false: call again later; empty: nothing to do */
    int chain = 0;
    uint64_t position = 0;                            /* in its chain, from 1 */
    vector_clock clock;                               /* own position included */
    vector_clock intended;                            /* likewise, see intent.h */
    std::vector<std::shared_ptr<work>> after, before; /* not yet done; waiting for this */
    size_t waits = 0;                                 /* unfinished works in `after` */
    bool done = false, wanted = false, started = false;
    uint32_t serial = 0; /* the latest that its accesses carry */
    double when = 0;     /* seconds, when it was done */
};
typedef std::shared_ptr<work> work_handle;

inline bool ordered_before(const work &earlier, const work &later) {
    return (size_t)earlier.chain < later.clock.size() && later.clock[(size_t)earlier.chain] >= earlier.position;
}

/* One lock for the whole simulator: every CUDA call holds it. */
std::recursive_mutex &simulator_lock();
extern std::atomic<uint64_t> calls_made;
struct hold {
    std::lock_guard<std::recursive_mutex> guard;
    hold() : guard(simulator_lock()) {
        calls_made++;
    }
};

/* A new chain's number. */
int chain_create();

/* Makes the work wait for `after`, gives it the next position of the chain, and puts it up for running. It may run at
 * once when the seed is for early work. left_out: what it was to wait for, too (intent.h). */
work_handle work_add(int chain, const std::string &name, std::function<bool()> advance,
                     const std::vector<work_handle> &after, const std::vector<work_handle> &left_out = {});

/* Runs works, this one and what it waits for at least, until it is done; later work of the host is ordered behind it.
 */
void work_finish(const work_handle &target);
void work_finish_all();
void work_leave_out(const work_handle &target); /* would be work_finish, but is left out (intent.h) */
bool work_is_done(const work_handle &target);   /* and if so, later work of the host is ordered behind it */
void work_poll();                               /* lets a little work run, as time passes on a real device */
bool work_progress();                           /* lets one work go on; false: none can */
void work_forget();                             /* drops what is queued */

/* The work that runs now on this host thread, or nullptr. */
extern thread_local work *running_work;

/* Serial numbers for its accesses: `count` in a row, the first returned. */
uint32_t serials_take(work &w, uint32_t count);

/* Serials below this one belong to work that everything still to run is ordered behind. */
extern uint32_t serials_settled;

/* The work that a serial belongs to; nullptr if settled. */
const work *work_of_serial(uint32_t serial);

/* Refuses a CUDA call from inside work (a host function must make none). */
void refuse_inside_work(const char *call);

} // namespace simcuda

#endif
