/* All steps that rings of a machine can be made of: from GPU to GPU, and between GPUs and cards. */
#ifndef FSDP_COMM_RING_STEPS_H
#define FSDP_COMM_RING_STEPS_H

#include "comm/ring.h"

typedef struct ring_steps {
    const topology *t;
    int gpus, first_gpu;   /* GPU g is node first_gpu + g */
    int cards, first_card; /* cards 0: rings stay inside the node */
    route *between;        /* [gpus][gpus]: from, to */
    route *enter, *leave;  /* [cards][gpus]; count 0: rings over this card do not enter or leave there */
} ring_steps;

/* with_cards: the machine is one of several nodes. Errors as ring_find's. */
bool ring_steps_find(const topology *t, bool with_cards, ring_steps *s, error *e);
void ring_steps_free(ring_steps *s);

#endif
