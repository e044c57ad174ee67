/* Reads a timeline back (engine/trace.h, launch/trace_file.h) and checks that it is one. */
#ifndef FSDP_TESTS_SUPPORT_TIMELINE_H
#define FSDP_TESTS_SUPPORT_TIMELINE_H

#include "engine/error.h"

#include <stdint.h>

typedef struct timeline_facts {
    int64_t slices, arrows, collectives, exposed;
} timeline_facts;

/* False: *e says what is wrong. Every event has its fields; every rank has its rows, its steps first .. last, and all
 * of them the same number of slices; slices of a row do not overlap; an arrow leads from inside a slice to the start of
 * one, and not back in time; the shares of a step are its seconds; what is exposed adds up to its share. */
bool timeline_check(const char *path, int ranks, int64_t first, int64_t last, timeline_facts *facts, error *e);

#endif
