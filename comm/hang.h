/* Private to comm/: what the ranks say when a collective has not finished in time, and the table that is made of it.
 *
 * The first rank whose time is up tells the others (comm/failure.h). Each rank then reports where it stands and takes
 * the reports of the others: through the window inside a node, as messages between nodes. A rank that is stuck does not
 * answer; what it issued last is seen in the window. All ranks make the same table; one of them prints it. */
#ifndef FSDP_COMM_HANG_H
#define FSDP_COMM_HANG_H

#include "comm/collectives.h"

typedef enum hang_state {
    HANG_SILENT,   /* has not answered */
    HANG_WAITS,    /* was waiting for a collective when the time was up */
    HANG_COMPUTES, /* had work of its own to do before this collective, when the time was up */
    HANG_MEETS,    /* had done all of a step, and waited for the others to say so too */
    HANG_LATE      /* was not, and has heard of it since, on coming to this collective */
} hang_state;

typedef struct hang_report {
    hang_state state;
    int64_t step;     /* from 1 */
    int32_t index;    /* of the collective in launch order; silent: the last that it issued, -1: none is known */
    char missing[64]; /* waits: the ranks that have not come, "1 4-7" */
} hang_report;

/* Seconds in which ranks are given to answer. */
static const double HANG_ANSWER_SECONDS = 2;

/* Writes ranks as "0 2-5 9", cut to the size; returns their number. */
int hang_list_ranks(const bool *among, int size, char *text, size_t text_size);

/* The table as an error's text: a row per group of ranks that stand at the same place. all[size], `list` and `count`
 * as in comm/collectives.h; first: the rank whose time was up first. Returns the rank that prints: the lowest that was
 * waiting. */
int hang_describe(const hang_report *all, int size, const collective *list, int32_t count, double timeout, int first,
                  error *e);

#endif
