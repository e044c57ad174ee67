/* All that is decided before memory is allocated: the step programs of this rank, checked and placed.
 *
 * Made from config, model and world size alone, so that --plan can make the plan of any rank of any job without
 * starting it. */
#ifndef FSDP_LAUNCH_PLAN_H
#define FSDP_LAUNCH_PLAN_H

#include "engine/run.h"
#include "engine/step.h"
#include "launch/config.h"
#include "models/model.h"
#include "shard/flat.h"

typedef struct plan {
    model *model;
    precision_settings precision;
    flat_layout *layout;
    mesh mesh;
    int64_t passes;        /* micro-batches of a rank in a step */
    int32_t level, levels; /* of recompute = memory: chosen, and the highest */
    step *train;           /* NULL when only validating */
    step *validation;      /* NULL when the run does not validate */
    int64_t arena_bytes;   /* the larger of the two programs, and the collectives' workspace behind it */
    int64_t copy_bytes;    /* of host memory beside it, on each rank of the first shard group: for the copy of the state
                              that is written to checkpoints; 0: they are not written in the background */
} plan;

typedef struct plan_wishes {
    bool train, validation;
} plan_wishes;

/* The plan of world->rank; world may be made up (see comm/world.h) for --plan. The config must be checked. budget:
 * bytes that the arena may have, the same on every rank: recompute = memory with memory = auto keeps to it, and what
 * is reduced is held for less where that helps to keep it (engine/place.h); nothing is refused for it otherwise. False
 * when recomputation cannot keep the budget, or when a program is found to be unsafe (engine/verify.h). */
bool plan_create(const config *c, const model_shape *shape, const world *w, device *d, plan_wishes wishes,
                 int64_t budget, plan **created, error *e);
void plan_destroy(plan *p);

run_settings plan_run_settings(const plan *p, const config *c);

/* Model, sharding and memory by kind. */
void plan_print(const plan *p, const config *c, FILE *to);

/* Every operation of the steps. */
void plan_print_program(const plan *p, FILE *to);

#endif
