/* The order that work would have if no call were left out (omission.h), beside the order that it has: whether leaving
 * out has changed it is told at the process's end. */
#ifndef SIMCUDA_INTENT_H
#define SIMCUDA_INTENT_H

#include "work.h"

namespace simcuda {

/* A new work's intended clock: behind all of `after`, those of `left_out`, and what the host was to wait for. Notes
 * what the work was to come behind and does not. Where nothing is to be left out, this and the others do nothing. */
void intent_add(work &w, const std::vector<work_handle> &after, const std::vector<work_handle> &left_out);

/* What a work touches as it runs. Works that lose their order but touch nothing in common lose nothing. */
void intent_touch(const work &w, uintptr_t address, size_t bytes, bool writes);

/* The host has waited for the work. */
void intent_learn(const work_handle &target);

/* The host was to wait for the work; `known`: the host's clock. */
void intent_leave_out(const work_handle &target, const vector_clock &known);

} // namespace simcuda

#endif
