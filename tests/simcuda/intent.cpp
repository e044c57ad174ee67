#include "intent.h"

#include "omission.h"

#include <cstdio>
#include <cstdlib>

namespace simcuda {

namespace {

/* A chain's works that do something; the others only order them. */
struct effects {
    std::vector<size_t> counts = {0}; /* by position: how many up to there */
    std::vector<std::string> names;
};

struct intent_state {
    vector_clock host;
    std::vector<effects> chains;
    size_t astray = 0;         /* works that have lost something that they were to come behind */
    std::string first, behind; /* the first, and what it has lost */
    std::string host_behind;   /* what the host was to wait for, and went on before: the first */
};

intent_state &intent() {
    static intent_state &state = *new intent_state; /* never destroyed: read at the process's end */
    return state;
}

void report() {
    const intent_state &all = intent();
    if (all.astray > 0)
        fprintf(stderr, "simcuda has %zu works out of order without it, first: %s does not wait for %s\n", all.astray,
                all.first.c_str(), all.behind.c_str());
    else if (!all.host_behind.empty())
        fprintf(stderr, "simcuda keeps the order of all work without it; only the host does not wait for %s\n",
                all.host_behind.c_str());
    else
        fprintf(stderr, "simcuda keeps the order of all work without it\n");
}

effects &effects_of(size_t chain) {
    if (chain >= intent().chains.size())
        intent().chains.resize(chain + 1);
    return intent().chains[chain];
}

void note_effect(const work &w) {
    effects &own = effects_of((size_t)w.chain);
    if (w.advance)
        own.names.push_back(w.name);
    own.counts.push_back(own.names.size()); /* at index w.position: works come one by one */
}

uint64_t entry(const vector_clock &clock, size_t chain) {
    return chain < clock.size() ? clock[chain] : 0;
}

/* The name of a work that one clock has and the other has not; nullptr: there is none. */
const std::string *lost(const vector_clock &intended, const vector_clock &known) {
    for (size_t chain = 0; chain < intended.size(); chain++) {
        const effects &of = effects_of(chain);
        const size_t count = of.counts[intended[chain]];
        if (count > of.counts[entry(known, chain)])
            return &of.names[count - 1];
    }
    return nullptr;
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
    const std::string *behind = w.advance ? lost(w.intended, w.clock) : nullptr;
    if (behind && intent().astray++ == 0)
        intent().first = w.name, intent().behind = *behind;
}

void intent_learn(const work_handle &target) {
    if (target && simcuda_omits_waits())
        clock_join(intent().host, target->intended);
}

void intent_leave_out(const work_handle &target, const vector_clock &known) {
    if (!target)
        return;
    const std::string *behind = lost(target->intended, known);
    if (behind && intent().host_behind.empty())
        intent().host_behind = *behind;
    intent_learn(target);
}

} // namespace simcuda
