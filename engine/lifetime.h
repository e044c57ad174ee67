/* When bytes are needed. A storage is the bytes of one tensor, of its views, and of later tensors that take the same
 * bytes over (an output that may share with an input that is read for the last time). */
#ifndef FSDP_ENGINE_LIFETIME_H
#define FSDP_ENGINE_LIFETIME_H

#include "engine/program.h"

typedef struct lifetime {
    tensor_id
        storage; /* the tensor that stands for the storage; views and takers name another tensor than themselves */
    int32_t first, last; /* for that tensor: positions of the first and last access; NO_OPERATION: never accessed */
    int64_t bytes;       /* for that tensor: bytes of the storage */
} lifetime;

/* One entry per tensor; freed by the caller. Which outputs share is decided here, from the list alone. */
lifetime *lifetimes_of(const program *p);

/* Which units lie outside of the model's blocks (embedding, head): they have no attention. Freed by the caller. */
bool *units_outside_blocks(const program *p);

#endif
