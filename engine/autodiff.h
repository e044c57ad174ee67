/* Derives the backward operations of one micro-batch: reverse-mode differentiation with one rule per operation kind. */
#ifndef FSDP_ENGINE_AUTODIFF_H
#define FSDP_ENGINE_AUTODIFF_H

#include "engine/program.h"

/* A new program: the forward operations of `forward` and, behind them, their backward. A chunk of the head is followed
 * by its own backward at once. Every tensor of role PARAMETER gets one gradient tensor of role GRADIENT with the same
 * unit and parameter number: the first operation that contributes overwrites it, later ones accumulate, and what
 * nothing contributes to is filled with zero. `forward` is left as it is. */
program *autodiff(const program *forward);

#endif
