/* Reports of misuse: how they are worded and where they lead. */
#ifndef SIMCUDA_REPORT_H
#define SIMCUDA_REPORT_H

#include <cstdarg>
#include <string>

namespace simcuda {

std::string format(const char *text, ...) __attribute__((format(printf, 1, 2)));

/* "file.cu:12" of an address in the code, or module and offset where no tool can tell. */
std::string source_line(const void *address);

/* Ends the process, or the body of simcuda_catch. On a fiber it leaves the block first: see block.h. */
[[noreturn]] void report(const std::string &text);

/* Whether simcuda_catch waits for a report. */
bool is_catching();

/* The second half of report(), on the host's own stack. */
[[noreturn]] void deliver(const std::string &text);

} // namespace simcuda

#endif
