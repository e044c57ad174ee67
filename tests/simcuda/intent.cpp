#include "intent.h"

#include "omission.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <unordered_map>

namespace simcuda {

namespace {

enum : uintptr_t { BLOCK = 256 }; /* where tensors begin */

/* A work that does something; the others only order them. */
struct effect {
    std::string name;
    std::unordered_map<uintptr_t, bool> blocks; /* of memory that it has touched; true: written */
};

struct chain_effects {
    std::vector<size_t> counts = {0}; /* by position in the chain: how many up to there */
    std::deque<effect> list;          /* likewise */
};

/* What was to come behind another, and does not. */
struct stray {
    const effect *who, *behind;
};

struct intent_state {
    vector_clock host;
    std::deque<chain_effects> chains; /* which stay where they are */
    std::unordered_map<const work *, effect *> effects;
    std::vector<stray> strays;
    std::string host_behind; /* what the host was to wait for, and went on before: the first */
};

intent_state &intent() {
    static intent_state &state = *new intent_state; /* never destroyed: read at the process's end */
    return state;
}

bool meet(const stray &s) {
    for (const auto &block : s.who->blocks) {
        const auto other = s.behind->blocks.find(block.first);
        if (other != s.behind->blocks.end() && (block.second || other->second))
            return true;
    }
    return false;
}

void report() {
    const intent_state &all = intent();
    const auto first = std::find_if(all.strays.begin(), all.strays.end(), meet);
    if (first != all.strays.end())
        fprintf(stderr, "simcuda has work out of order without it: %s does not wait for %s\n", first->who->name.c_str(),
                first->behind->name.c_str());
    else if (!all.strays.empty())
        fprintf(stderr,
                "simcuda keeps the order of all work on the same memory without it; only %s does not wait for %s\n",
                all.strays[0].who->name.c_str(), all.strays[0].behind->name.c_str());
    else if (!all.host_behind.empty())
        fprintf(stderr, "simcuda keeps the order of all work without it; only the host does not wait for %s\n",
                all.host_behind.c_str());
    else
        fprintf(stderr, "simcuda keeps the order of all work without it\n");
}

chain_effects &effects_of(size_t chain) {
    if (chain >= intent().chains.size())
        intent().chains.resize(chain + 1);
    return intent().chains[chain];
}

/* Works of a chain come one by one: counts[w.position]. */
void note_effect(const work &w) {
    chain_effects &own = effects_of((size_t)w.chain);
    if (w.advance) {
        own.list.push_back({w.name, {}});
        intent().effects[&w] = &own.list.back();
    }
    own.counts.push_back(own.list.size());
}

uint64_t entry(const vector_clock &clock, size_t chain) {
    return chain < clock.size() ? clock[chain] : 0;
}

/* Calls f for what one clock has and the other has not. */
template <typename function> void each_lost(const vector_clock &intended, const vector_clock &known, function f) {
    for (size_t chain = 0; chain < intended.size(); chain++) {
        const chain_effects &of = effects_of(chain);
        for (size_t i = of.counts[entry(known, chain)]; i < of.counts[intended[chain]]; i++)
            f(of.list[i]);
    }
}

} // namespace

void intent_add(work &w, const std::vector<work_handle> &after, const std::vector<work_handle> &left_out) {
    if (!simcuda_omits_waits())
        return;
    if (intent().chains.empty())
        atexit(report);
    note_effect(w);
    w.intended = intent().host;
    clock_join(w.intended, w.clock);
    for (const std::vector<work_handle> *list : {&after, &left_out})
        for (const work_handle &earlier : *list)
            if (earlier)
                clock_join(w.intended, earlier->intended);
    if (w.advance)
        each_lost(w.intended, w.clock, [&](const effect &behind) {
            intent().strays.push_back({intent().effects[&w], &behind});
        });
}

void intent_touch(const work &w, uintptr_t address, size_t bytes, bool writes) {
    const auto found = intent().effects.find(&w);
    if (found == intent().effects.end())
        return;
    for (uintptr_t block = address / BLOCK; block <= (address + bytes - 1) / BLOCK; block++)
        found->second->blocks[block] |= writes;
}

void intent_learn(const work_handle &target) {
    if (target && simcuda_omits_waits())
        clock_join(intent().host, target->intended);
}

void intent_leave_out(const work_handle &target, const vector_clock &known) {
    if (!target)
        return;
    each_lost(target->intended, known, [](const effect &behind) {
        if (intent().host_behind.empty())
            intent().host_behind = behind.name;
    });
    intent_learn(target);
}

} // namespace simcuda
