/* Merges neighbours of a step's list into one operation, where the device executes that (`fuses`, device.h).
 *
 * A matmul and a gelu of its product: a matmul that takes the gelu. The product is then its second output, and is not
 * written at all where nothing but the gelu reads it: in validation, and where backward computes it again.
 *
 * A column_sum and a matmul, the gradients of a bias and a weight: a matmul that sums the columns of its second factor,
 * too, as its third output. Only where neither adds to what is there.
 *
 * Neighbours have nothing between them in the list, so that one operation in their place can come neither too early nor
 * too late for any other. Which are merged depends on the list, the shapes and the device alone. Before tensors are
 * placed. */
#ifndef FSDP_ENGINE_FUSE_H
#define FSDP_ENGINE_FUSE_H

#include "engine/program.h"

void fuse(program *p, device *d);

#endif
