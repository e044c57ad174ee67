/* Derives the backward operations of one micro-batch: reverse-mode differentiation with one rule per operation kind. */
#ifndef FSDP_ENGINE_AUTODIFF_H
#define FSDP_ENGINE_AUTODIFF_H

#include "engine/precision.h"
#include "engine/program.h"

/* A new program: the forward operations of `forward` and, behind them, their backward. A chunk of the head is followed
 * by its own backward at once. Every tensor of role PARAMETER gets one gradient tensor of role GRADIENT with the same
 * unit and parameter number: the first operation that contributes overwrites it, later ones accumulate, and what
 * nothing contributes to is filled with zero. `forward` is left as it is.
 *
 * keep[t] says whether the forward tensor t is kept for the backward; NULL: all are. One that is needed and was not
 * kept is written again, by re-emitting the operation that made it, and so on down to what was kept: the same kernels
 * on the same inputs, hence the same bits.
 *
 * Gradients of activations have the activations' types, those of parameters the precision's. With a loss scale there is
 * a tensor of role MOMENT, [LOSS_SCALE_COUNT], that the losses' gradients are multiplied by. */
program *autodiff(const program *forward, const bool *keep, const precision_settings *precision);

#endif
