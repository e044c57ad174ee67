/* Checks a timeline: tool_timeline FILE RANKS FIRST_STEP LAST_STEP. */
#include "support/timeline.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    timeline_facts facts;
    error e = {0};
    if (argc != 5) {
        fprintf(stderr, "tool_timeline FILE RANKS FIRST_STEP LAST_STEP\n");
        return EXIT_USAGE;
    }
    if (!timeline_check(argv[1], atoi(argv[2]), atoi(argv[3]), atoi(argv[4]), &facts, &e)) {
        fprintf(stderr, "%s\n", e.message);
        return e.code;
    }
    printf("%lld slices, %lld arrows\n", (long long)facts.slices, (long long)facts.arrows);
    return EXIT_FINISHED;
}
