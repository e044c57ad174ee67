/* Private to comm/: what a rank tells the others when it cannot go on. */
#ifndef FSDP_COMM_FAILURE_H
#define FSDP_COMM_FAILURE_H

#include "engine/error.h"

typedef struct failure {
    error error; /* names the rank already: not `own` */
    int speaker; /* the rank that prints; NOBODY_LOST: all ranks are well, an ordinary agreement follows */
    bool hang;   /* time is up: ranks report where they stand, which gives error and speaker (comm/hang.h) */
} failure;

enum { NOBODY_LOST = -1 };

#endif
