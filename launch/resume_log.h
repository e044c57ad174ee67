/* What a run that goes on says about it, and what it sets aside. For rank 0. */
#ifndef FSDP_LAUNCH_RESUME_LOG_H
#define FSDP_LAUNCH_RESUME_LOG_H

#include "launch/resume.h"

/* Fields of the resume event (launch/metrics.h); a new reference. The run goes on from a checkpoint. */
json_t *resume_fields(const resume *r);

/* Sets aside what an earlier run in this folder did behind the step where this one begins: its checkpoints and, when
 * this one goes on from a checkpoint, lines of metrics.jsonl. Prints from where the run goes on, and what changed. */
bool resume_supersede(const resume *r, const config *c, error *e);

#endif
