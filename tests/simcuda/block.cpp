#include "block.h"

#include "copy_async.h"
#include "counters.h"
#include "fiber.h"
#include "omission.h"
#include "random.h"
#include "report.h"
#include "shared.h"

#include <algorithm>
#include <cstring>

namespace simcuda {

thread_local device_thread *running_thread;
thread_local device_block *running_block;

namespace {

/* The stacks of this process, and where the host stands while a block runs. */
struct fiber_pool {
    std::vector<char *> free;
    void *host;
    std::string abandoned; /* the report that ended the block */
};
fiber_pool &pool() {
    static fiber_pool &p = *new fiber_pool; /* never destroyed: progress.h */
    return p;
}

void fiber_main();

char *stack_take() {
    fiber_pool &p = pool();
    if (p.free.empty())
        return fiber_stack_create();
    char *stack = p.free.back();
    p.free.pop_back();
    return stack;
}

/* One of the runnable threads, by the seed; nullptr: none. */
device_thread *pick() {
    device_block &b = *running_block;
    if (b.runnable.empty())
        return nullptr;
    const uint32_t i = random_below((uint32_t)b.runnable.size());
    device_thread *t = &b.threads[b.runnable[i]];
    b.runnable[i] = b.runnable.back();
    b.runnable.pop_back();
    return t;
}

/* Where to switch to for the thread to go on. */
void *resume(device_thread *t) {
    running_thread = t;
    if (t->state == device_thread::NOT_STARTED) {
        char *stack = stack_take();
        t->stack = (uintptr_t)stack;
        t->saved = fiber_prepare(stack, FIBER_STACK_BYTES, fiber_main);
    }
    t->state = device_thread::RUNNABLE;
    return t->saved;
}

/* Runs threads that have not started, one after another, on one stack. */
void fiber_main() {
    device_block &b = *running_block;
    for (;;) {
        device_thread *t = running_thread;
        b.launch->call(b.launch->arguments.data());
        copies_check_left(*t);
        t->state = device_thread::LEFT;
        b.left++;
        device_thread *next = pick();
        void *unused;
        if (!next) {
            running_thread = nullptr;
            pool().free.push_back((char *)t->stack);
            simcuda_switch(&unused, pool().host);
        } else if (next->state == device_thread::NOT_STARTED) {
            next->stack = t->stack;
            next->state = device_thread::RUNNABLE;
            running_thread = next;
        } else {
            pool().free.push_back((char *)t->stack);
            simcuda_switch(&unused, resume(next));
        }
    }
}

const char *name_of(meeting m) {
    switch (m) {
    case MEET_BLOCK_BARRIER:
        return "__syncthreads";
    case MEET_WARP_BARRIER:
        return "__syncwarp";
    case MEET_SHUFFLE:
        return "a shuffle";
    case MEET_BALLOT:
        return "a vote";
    case MEET_REDUCE:
        return "a reduction of the warp";
    case MEET_MMA:
        return "mma";
    case MEET_LDMATRIX:
        return "ldmatrix";
    default:
        return "nothing";
    }
}

const char *base_name(const char *file) {
    const char *slash = strrchr(file, '/');
    return slash ? slash + 1 : file;
}

/* No thread can go on, and not all have returned. */
std::string explain_stuck(const device_block &b) {
    const device_thread *waiting = nullptr, *other = nullptr, *left = nullptr;
    for (const device_thread &t : b.threads) {
        if (t.state == device_thread::LEFT) {
            if (!left)
                left = &t;
        } else if (!waiting) {
            waiting = &t;
        } else if (!other && (t.where != waiting->where || t.file != waiting->file || t.line != waiting->line)) {
            other = &t;
        }
    }
    if (waiting->where != MEET_BLOCK_BARRIER) /* whom of its own warp does it miss? */
        for (int lane = 0; lane < WARP_LANES; lane++) {
            const unsigned number = waiting->number / WARP_LANES * WARP_LANES + (unsigned)lane;
            if (!(waiting->mask >> lane & 1u))
                continue;
            if (number >= b.count)
                return format("%s %s with mask %08x, but its warp has no lane %d", who(*waiting).c_str(),
                              where(*waiting).c_str(), waiting->mask, lane);
            const device_thread &missing = b.threads[number];
            if (missing.state == device_thread::LEFT)
                left = &missing, other = nullptr, lane = WARP_LANES;
            else if (missing.where != waiting->where || missing.mask != waiting->mask ||
                     missing.line != waiting->line || missing.file != waiting->file)
                other = &missing, left = nullptr, lane = WARP_LANES;
        }
    if (other)
        return format("threads wait for each other for ever: %s %s (mask %08x), but thread (%u,%u,%u) %s (mask %08x)",
                      who(*waiting).c_str(), where(*waiting).c_str(), waiting->mask, other->index.x, other->index.y,
                      other->index.z, where(*other).c_str(), other->mask);
    return format("%s %s, but thread (%u,%u,%u) has left the kernel", who(*waiting).c_str(), where(*waiting).c_str(),
                  left->index.x, left->index.y, left->index.z);
}

void threads_reset(device_block &b) {
    const uint3 size = b.launch->block;
    b.runnable.clear();
    unsigned n = 0;
    for (unsigned z = 0; z < size.z; z++)
        for (unsigned y = 0; y < size.y; y++)
            for (unsigned x = 0; x < size.x; x++, n++) {
                device_thread &t = b.threads[n];
                t.index = {x, y, z};
                t.number = (uint16_t)n;
                t.stamp = t.warp_stamp = 0;
                t.state = device_thread::NOT_STARTED;
                t.where = MEET_NOWHERE;
                t.copies.clear();
                t.groups.clear();
                b.runnable.push_back((uint16_t)n);
            }
    b.time = b.barrier_time = 0;
    b.left = b.at_barrier = 0;
    b.barrier_sum = 0;
    b.partial.clear();
}

void block_run(device_block &b) {
    threads_reset(b);
    device_thread *first = pick();
    simcuda_switch(&pool().host, resume(first));
    if (pool().abandoned.empty() && b.left != b.count)
        pool().abandoned = explain_stuck(b);
    if (pool().abandoned.empty())
        return;
    for (const device_thread &t : b.threads) /* stacks of those that will not go on */
        if (t.state == device_thread::WAITING || t.state == device_thread::RUNNABLE)
            pool().free.push_back((char *)t.stack);
}

/* A permutation of 0 .. n-1 without storage: i -> (a i + b) mod n with a prime to n. */
struct shuffled {
    uint64_t n, a, b;
    explicit shuffled(uint64_t count) : n(count), a(1), b(0) {
        if (n < 2)
            return;
        do
            a = 1 + random_bits() % (n - 1);
        while (std::__gcd(a, n) != 1);
        b = random_bits() % n;
    }
    uint64_t operator()(uint64_t i) const {
        return (uint64_t)(((unsigned __int128)a * i + b) % n);
    }
};

} // namespace

std::string who(const device_thread &t) {
    const device_block &b = *running_block;
    return format("kernel %s, block (%u,%u,%u), thread (%u,%u,%u)", b.launch->name.c_str(), b.index.x, b.index.y,
                  b.index.z, t.index.x, t.index.y, t.index.z);
}

std::string where(const device_thread &t) {
    return format("waits at %s, %s:%d", name_of(t.where), base_name(t.file), t.line);
}

void launch_run(const kernel_launch &launch, work &owner) {
    const uint64_t blocks = (uint64_t)launch.grid.x * launch.grid.y * launch.grid.z;
    if (blocks > CELL_LATEST_SERIAL / 4)
        report(format("kernel %s has %llu blocks: more than simcuda can run", launch.name.c_str(),
                      (unsigned long long)blocks));
    device_block block = {};
    block.launch = &launch;
    block.owner = &owner;
    block.count = launch.block.x * launch.block.y * launch.block.z;
    block.threads.resize(block.count);
    block.first_serial = serials_take(owner, (uint32_t)blocks);
    shared_begin(launch.shared_bytes);
    counters_launch(owner);
    running_block = &block;
    const shuffled order(blocks);
    for (uint64_t i = 0; i < blocks && pool().abandoned.empty(); i++) {
        const uint64_t number = order(i);
        block.index = {(unsigned)(number % launch.grid.x), (unsigned)(number / launch.grid.x % launch.grid.y),
                       (unsigned)(number / launch.grid.x / launch.grid.y)};
        block.serial = block.first_serial + (uint32_t)i;
        shared_poison(launch.shared_bytes);
        block_run(block);
        counters_block_end(block);
    }
    if (!pool().abandoned.empty()) {
        const std::string text = pool().abandoned;
        pool().abandoned.clear();
        running_thread = nullptr;
        running_block = nullptr;
        deliver(text);
    }
    running_thread = nullptr;
    running_block = nullptr;
}

void thread_wait() {
    device_thread *t = running_thread;
    t->state = device_thread::WAITING;
    device_thread *next = pick();
    void *to = pool().host;
    running_thread = nullptr;
    if (next)
        to = resume(next);
    simcuda_switch(&t->saved, to);
}

void block_abandon(const std::string &text) {
    pool().abandoned = text;
    device_thread *t = running_thread;
    running_thread = nullptr;
    simcuda_switch(&t->saved, pool().host);
    __builtin_unreachable();
}

bool thread_ordered(uint64_t entry, const device_thread &t) {
    const device_block &b = *running_block;
    const uint32_t thread = cell_thread(entry), stamp = cell_stamp(entry);
    if (thread == t.number || stamp < b.barrier_time)
        return true;
    if (thread / WARP_LANES != t.number / WARP_LANES)
        return false;
    return stamp < t.warp_stamp ||
           (!b.partial.empty() && stamp < b.partial[t.number * WARP_LANES + thread % WARP_LANES]);
}

} // namespace simcuda

using namespace simcuda;

/* The last thread to come lets the others go on. */
static void block_meet(int predicate, const char *file, int line) {
    device_block &b = *running_block;
    device_thread *self = running_thread;
    self->where = MEET_BLOCK_BARRIER;
    self->mask = 0xffffffffu;
    self->file = file;
    self->line = line;
    b.barrier_sum += predicate != 0;
    if (++b.at_barrier < b.count) {
        thread_wait();
        return;
    }
    b.at_barrier = 0;
    b.barrier_result = b.barrier_sum;
    b.barrier_sum = 0;
    if (b.time >= CELL_LATEST_STAMP - 1)
        report(who(*self) + ": more barriers in one block than simcuda can count");
    b.barrier_time = ++b.time;
    for (device_thread &t : b.threads) {
        if (t.line != line || (t.file != file && strcmp(t.file, file) != 0))
            report(format("threads of one block meet at different barriers: %s %s, but thread (%u,%u,%u) %s",
                          who(*self).c_str(), where(*self).c_str(), t.index.x, t.index.y, t.index.z, where(t).c_str()));
        t.stamp = t.warp_stamp = b.time;
        t.where = MEET_NOWHERE;
        if (&t != self) {
            t.state = device_thread::RUNNABLE;
            b.runnable.push_back(t.number);
        }
    }
}

void simcuda_block_barrier(const char *file, int line) {
    if (!simcuda_omits_barrier(file, line))
        block_meet(0, file, line);
}

int simcuda_block_barrier_count(int predicate, const char *file, int line) {
    block_meet(predicate, file, line);
    return running_block->barrier_result;
}

uint3 simcuda_thread_index(void) {
    return running_thread->index;
}

uint3 simcuda_block_index(void) {
    return running_block->index;
}

uint3 simcuda_block_dimensions(void) {
    return running_block->launch->block;
}

uint3 simcuda_grid_dimensions(void) {
    return running_block->launch->grid;
}
