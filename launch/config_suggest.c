#include "launch/config_suggest.h"

#include <stdio.h>

/* Zero: there is none. */
static const char *say(int64_t below, int64_t above, char text[SUGGESTION]) {
    if (below > 0 && above > 0)
        snprintf(text, SUGGESTION, "%lld and %lld would do", (long long)below, (long long)above);
    else
        snprintf(text, SUGGESTION, "%lld would do", (long long)(below > 0 ? below : above));
    return text;
}

const char *suggest_divisors(int64_t value, int64_t of, char text[SUGGESTION]) {
    int64_t below = value < of ? value : of, above = value + 1;
    while (of % below != 0)
        below--;
    while (above < of && of % above != 0)
        above++;
    return say(below, above <= of ? above : 0, text);
}

const char *suggest_multiples(int64_t value, int64_t of, char text[SUGGESTION]) {
    return say(value / of * of, value / of * of + of, text);
}
