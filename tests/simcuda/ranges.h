/* Writes what is queued, and the ranges of profilers around it, to the file that SIMCUDA_RANGES names. */
#ifndef SIMCUDA_RANGES_H
#define SIMCUDA_RANGES_H

#include <string>

namespace simcuda {

void ranges_note_work(const std::string &name);

} // namespace simcuda

#endif
