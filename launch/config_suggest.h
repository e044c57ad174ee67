/* Values near a wrong one that would do, as messages say them: "4 and 8 would do". */
#ifndef FSDP_LAUNCH_CONFIG_SUGGEST_H
#define FSDP_LAUNCH_CONFIG_SUGGEST_H

#include <stdint.h>

enum { SUGGESTION = 64 };

/* Each writes into `text` and returns it. The nearest below and above `value`, where they exist. */
const char *suggest_divisors(int64_t value, int64_t of, char text[SUGGESTION]);
const char *suggest_multiples(int64_t value, int64_t of, char text[SUGGESTION]);

#endif
