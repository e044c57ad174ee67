#include "work.h"

#include "intent.h"
#include "memory.h"
#include "progress.h"
#include "races.h"
#include "random.h"
#include "report.h"
#include "shadow.h"
#include "shared.h"

#include <algorithm>
#include <ctime>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

namespace simcuda {

namespace {

struct executed { /* serials from `first` on, up to the next entry's */
    uint32_t first;
    work_handle who;
};

struct queue_state {
    std::vector<work_handle> ready;  /* may run */
    size_t pending = 0;              /* added and not done */
    std::vector<executed> history;   /* by serial; since serials_settled */
    std::vector<uint64_t> positions; /* by chain: works added so far */
    vector_clock host;
    uint32_t next_serial = 1;
    std::vector<work_handle> unfinished; /* everything added and not done, for work_finish_all and work_forget */
};

queue_state &queue() {
    static queue_state &state = *new queue_state; /* never destroyed: progress.h */
    return state;
}

double seconds_now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* How willingly work runs before the host asks for it; the seed's choice for the whole run. */
enum eagerness { LATE, EARLY, NOW_AND_THEN };
eagerness seed_eagerness() {
    return (eagerness)(random_sequence().seed % 3);
}

void finish(const work_handle &w) {
    queue_state &q = queue();
    w->done = true;
    w->when = seconds_now();
    w->advance = nullptr;
    w->after.clear();
    for (const work_handle &next : w->before)
        if (--next->waits == 0)
            q.ready.push_back(next);
    w->before.clear();
    q.pending--;
    if (q.pending == 0) {
        q.unfinished.clear();
    } else if (q.unfinished.size() > 2 * q.pending + 64) {
        q.unfinished.erase(
            std::remove_if(q.unfinished.begin(), q.unfinished.end(), [](const work_handle &u) { return u->done; }),
            q.unfinished.end());
    }
}

/* Forgets the leading history that all future work is ordered behind. Only when nothing is queued: what was queued
 * before the host synchronised is not ordered by it. */
void settle() {
    queue_state &q = queue();
    if (q.pending != 0)
        return;
    size_t settled = 0;
    while (settled < q.history.size()) {
        const work &w = *q.history[settled].who;
        if ((size_t)w.chain >= q.host.size() || q.host[(size_t)w.chain] < w.position)
            break;
        settled++;
    }
    q.history.erase(q.history.begin(), q.history.begin() + (ptrdiff_t)settled);
    serials_settled = q.history.empty() ? q.next_serial : q.history.front().first;
    if (!q.history.empty())
        return;
    races_forget();
    if (q.next_serial > CELL_LATEST_SERIAL / 2) { /* long before they run out: begin again */
        if (memory.cells)
            madvise(memory.cells, memory.bytes / 2 * sizeof(cell), MADV_DONTNEED);
        shared_forget();
        q.next_serial = serials_settled = 1;
    }
}

/* Lets one ready work go on. wanted_only: of those that work_finish needs. False: none could. */
bool run_one(bool wanted_only) {
    queue_state &q = queue();
    std::vector<size_t> candidates;
    for (size_t i = 0; i < q.ready.size(); i++)
        if (!wanted_only || q.ready[i]->wanted)
            candidates.push_back(i);
    while (!candidates.empty()) {
        const size_t pick = random_below((uint32_t)candidates.size());
        const work_handle w = q.ready[candidates[pick]];
        candidates[pick] = candidates.back();
        candidates.pop_back();
        bool complete = true;
        if (w->advance) {
            running_work = w.get();
            if (!w->started) {
                w->started = true;
                w->serial = q.next_serial++;
                q.history.push_back({w->serial, w});
            }
            complete = w->advance();
            running_work = nullptr;
        }
        if (complete) {
            q.ready.erase(std::find(q.ready.begin(), q.ready.end(), w));
            finish(w);
            return true;
        }
    }
    return false;
}

/* Later work of the host is ordered behind it. */
void learn(const work_handle &target) {
    clock_join(queue().host, target->clock);
    intent_learn(target);
    settle();
}

void want(const work_handle &target) {
    std::vector<work *> stack = {target.get()};
    while (!stack.empty()) {
        work *w = stack.back();
        stack.pop_back();
        if (w->wanted || w->done)
            continue;
        w->wanted = true;
        for (const work_handle &earlier : w->after)
            stack.push_back(earlier.get());
    }
}

} // namespace

thread_local work *running_work;
uint32_t serials_settled = 1;

void clock_join(vector_clock &clock, const vector_clock &other) {
    if (clock.size() < other.size())
        clock.resize(other.size());
    for (size_t i = 0; i < other.size(); i++)
        clock[i] = std::max(clock[i], other[i]);
}

std::recursive_mutex &simulator_lock() {
    static std::recursive_mutex &lock = *new std::recursive_mutex;
    return lock;
}

int chain_create() {
    queue().positions.push_back(0);
    return (int)queue().positions.size() - 1;
}

work_handle work_add(int chain, const std::string &name, std::function<bool()> advance,
                     const std::vector<work_handle> &after, const std::vector<work_handle> &left_out) {
    queue_state &q = queue();
    work_handle w = std::make_shared<work>();
    w->name = name;
    w->advance = std::move(advance);
    w->chain = chain;
    w->position = ++q.positions[(size_t)chain];
    w->clock = q.host;
    for (const work_handle &earlier : after) {
        if (!earlier)
            continue;
        clock_join(w->clock, earlier->clock);
        if (!earlier->done) {
            w->after.push_back(earlier);
            earlier->before.push_back(w);
        }
    }
    w->waits = w->after.size();
    if (w->clock.size() <= (size_t)chain)
        w->clock.resize((size_t)chain + 1);
    w->clock[(size_t)chain] = w->position;
    intent_add(*w, after, left_out);
    q.pending++;
    q.unfinished.push_back(w);
    progress_start();
    if (w->waits == 0)
        q.ready.push_back(w);
    return w;
}

void work_poll() {
    const eagerness how = seed_eagerness();
    if (running_work || how == LATE || (how == NOW_AND_THEN && random_below(4) != 0))
        return;
    do {
        if (!run_one(false))
            break;
    } while (how == EARLY || random_below(2) != 0);
}

void work_finish(const work_handle &target) {
    if (!target)
        return;
    want(target);
    const bool wanted_only = seed_eagerness() == LATE;
    while (!target->done)
        if (!run_one(wanted_only))
            usleep(20); /* all wait for another process */
    learn(target);
}

void work_leave_out(const work_handle &target) {
    intent_leave_out(target, queue().host);
}

void work_finish_all() {
    queue_state &q = queue();
    while (q.pending != 0)
        if (!run_one(false))
            usleep(20);
    q.host = q.positions;
    settle();
}

bool work_is_done(const work_handle &target) {
    if (target && !target->done) {
        run_one(false); /* so that polling comes to an end */
        if (!target->done)
            return false;
    }
    if (target)
        learn(target);
    return true;
}

void work_forget() {
    queue_state &q = queue();
    for (const work_handle &w : q.unfinished) {
        w->done = true;
        w->advance = nullptr;
        w->after.clear();
        w->before.clear();
    }
    q.unfinished.clear();
    q.ready.clear();
    q.pending = 0;
    running_work = nullptr;
    q.host = q.positions;
    settle();
}

bool work_progress() {
    return queue().pending != 0 && run_one(false);
}

uint32_t serials_take(work &w, uint32_t count) {
    queue_state &q = queue();
    const uint32_t first = q.next_serial;
    if (first > CELL_LATEST_SERIAL - count)
        report("the run has more blocks between two synchronisations of the device than simcuda can count");
    q.next_serial += count;
    q.history.push_back({first, w.shared_from_this()});
    w.serial = first + count - 1;
    return first;
}

const work *work_of_serial(uint32_t serial) {
    const queue_state &q = queue();
    if (serial < serials_settled)
        return nullptr;
    auto e = std::upper_bound(q.history.begin(), q.history.end(), serial,
                              [](uint32_t value, const executed &x) { return value < x.first; });
    return e == q.history.begin() ? nullptr : (e - 1)->who.get();
}

void refuse_inside_work(const char *call) {
    if (running_work)
        report(format("%s was called by the work %s while it ran: host functions must not call CUDA", call,
                      running_work->name.c_str()));
}

} // namespace simcuda
