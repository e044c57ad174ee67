/* A training step written down as data: a flat list of operations on named tensors, on a few streams, for one rank.
 *
 * Every part of the engine reads or extends this list and nothing else describes a step. In the order in which
 * launch/plan.c calls them:
 *
 *   models/            writes the forward operations of one micro-batch on whole parameters
 *   engine/recompute   chooses which activations are kept for the backward
 *   engine/autodiff    appends the backward operations, one rule per kind
 *   shard/schedule     makes a step of it: unrolls micro-batches and inserts gathers and reductions
 *   optim/             appends norm, clip and update on the shards
 *   engine/fuse        merges neighbours that the device executes as one operation
 *   engine/place       gives every tensor its bytes in one arena (engine/lifetime, hold, pack)
 *   engine/waits       derives which operation waits for which across streams
 *   engine/verify      proves the result safe, knowing nothing of how it was derived
 *   engine/run         executes it, on any device; engine/trace draws what it measured
 *
 * So there are two kinds of program: of one micro-batch, without addresses or waits, up to autodiff; and of a whole
 * step, from shard/schedule on.
 *
 * Rules: a tensor is written once, save declared accumulators (an output whose bit in `accumulate` is set). There is
 * no free operation: a tensor lives from its first write to its last read. What differs from step to step (rate,
 * counted tokens) is a small tensor copied in first. A program is built once, then read-only. */
#ifndef FSDP_ENGINE_PROGRAM_H
#define FSDP_ENGINE_PROGRAM_H

#include "engine/device/device.h"
#include "engine/error.h"

#include <stdio.h>

typedef int32_t tensor_id;
enum { NO_TENSOR = -1, NO_UNIT = -1, NO_CHUNK = -1, NO_OPERATION = -1 };

typedef enum phase { PHASE_FORWARD, PHASE_BACKWARD, PHASE_UPDATE, PHASE_COUNT } phase;

/* What a tensor is for; the memory table has one line per role. */
typedef enum tensor_role {
    ROLE_MASTER,         /* this rank's shard of a unit's fp32 parameters; persistent */
    ROLE_MOMENT,         /* optimizer state of the same shard, and what else changes with updates; persistent */
    ROLE_CONSTANT,       /* tables computed at start-up (rotary angles); persistent */
    ROLE_PARAMETER,      /* before shard/: a whole parameter; afterwards a view of a gathered unit */
    ROLE_ROUNDED,        /* this rank's shard of a unit as it is gathered, where that is not in fp32 */
    ROLE_GATHERED,       /* a unit's whole flat parameter, between a gather and its last use */
    ROLE_GRADIENT,       /* before shard/: a parameter's gradient; afterwards a view of a unit's flat gradient */
    ROLE_FLAT_GRADIENT,  /* a unit's whole flat gradient, until reduced */
    ROLE_GRADIENT_SHARD, /* the reduced gradient of this rank's shard */
    ROLE_ACTIVATION,     /* forward and backward values of one micro-batch */
    ROLE_WORKSPACE,      /* scratch of one operation */
    ROLE_INPUT,          /* tokens, targets, scalars copied in */
    ROLE_RESULT,         /* norms, losses, what is copied out */
    ROLE_COUNT
} tensor_role;

const char *stream_name(stream s);
const char *phase_name(phase p);
const char *tensor_role_name(tensor_role role);

/* Where an activation belongs, for the choice of what backward keeps (engine/recompute.h); set by models/. */
typedef enum tensor_part {
    PART_OTHER,       /* outside of blocks: always kept */
    PART_ENTRY,       /* what a block starts from: its residual sum */
    PART_ATTENTION,   /* up to the input of the attention's output projection */
    PART_FEED_FORWARD /* the rest of the block */
} tensor_part;

typedef struct tensor {
    char *name; /* "block3.attention.qkv"; owned by the program */
    tensor_role role;
    dtype type;
    int64_t shape[OPERAND_DIMENSIONS]; /* unused trailing dimensions are 1 */
    int64_t bytes;                     /* of this tensor, without padding */
    tensor_id base;                    /* NO_TENSOR, or the tensor that this one is a view of (never itself a view) */
    int64_t offset;                    /* bytes from the start of base */
    int32_t unit, parameter; /* of parameters and their gradients, and what shard/ makes of them; NO_UNIT, -1: none */
    /* Of activations, for engine/recompute; a step's program has neither. block: of the model, from 0; -1: none */
    tensor_part part;
    int32_t block;
    bool persistent; /* holds its value from step to step */
    int64_t address; /* bytes from the arena's start; -1 until placed; views follow their base */
} tensor;

typedef struct operation {
    operation_kind kind;
    stream stream;
    phase phase;
    int32_t unit; /* unit whose parameters it works with or moves; NO_UNIT: none */
    int32_t pass; /* number among this rank's micro-batches of a step, from 0 */
    /* Forward operations with the same chunk number are one piece of the head, ending in a loss: autodiff puts the
     * piece's backward right behind it, so that logits of the whole micro-batch never exist. NO_CHUNK: ordinary. */
    int32_t chunk;
    tensor_id in[OPERATION_INPUTS], out[OPERATION_OUTPUTS]; /* NO_TENSOR: absent */
    uint32_t accumulate;                                    /* bit o: adds to out[o] */
    tensor_id workspace;                                    /* NO_TENSOR: needs none */
    attributes attributes;
    /* Written by engine/waits; NO_OPERATION: none. For each stream, the latest operation there that must be done before
     * this one starts. A stream executes in order, so waits on its own happen only between collectives, which are
     * completed by their waiters. */
    int32_t wait[STREAM_COUNT];
    /* For each stream, the latest collective there whose input every rank must have read before this one starts, which
     * overwrites it. */
    int32_t release[STREAM_COUNT];
} operation;

/* Bytes of a tensor that no operation gives a value, and that none uses: gaps between parameters, and what makes shards
 * equally long. */
typedef struct padding {
    tensor_id tensor;
    int64_t offset, bytes;
} padding;

typedef struct program {
    tensor *tensors;
    int32_t tensor_count, tensor_capacity;
    operation *operations;
    int32_t operation_count, operation_capacity;
    padding *padding; /* a tensor's lies together, in ascending order */
    int32_t padding_count, padding_capacity;
    char **unit_names;
    int32_t unit_count;
    void **owned; /* arrays that attributes point to; freed with the program */
    int32_t owned_count;
    /* Written by engine/place. */
    int64_t arena_bytes;
    int64_t persistent_bytes; /* part of it at the arena's start that outlives a step */
    int64_t live_bytes;       /* the most that lives at once in the order of the list: no packing needs less */
    int64_t held_bytes;       /* likewise, when what is being reduced is held for longer (engine/hold.h), as it is */
    int32_t shortened_holds;  /* tensors that are held for less than is best for speed, to save bytes */
} program;

program *program_create(int32_t units, const char *const *unit_names);
void program_destroy(program *p);

/* Adds a tensor. The name is copied. Shape: `dimensions` sizes, each > 0; their product times the element size must
 * fit int64_t (checked before by config, so an overflow here is an internal fault). */
tensor_id program_tensor(program *p, const char *name, tensor_role role, dtype type, int dimensions,
                         const int64_t *shape);

/* Adds a view of another tensor's bytes from `offset` on, of the same type (a view of a view becomes a view of its
 * base). The bytes that it shows lie within the other's. It has the other's role and unit. */
tensor_id program_view(program *p, const char *name, tensor_id of, int64_t offset, int dimensions,
                       const int64_t *shape);

/* The tensor whose bytes this one lives in: itself or its base. */
tensor_id program_base(const program *p, tensor_id t);

/* Declares bytes of a tensor as padding: in ascending order, all of a tensor before that of the next one. No bytes: no
 * padding. */
void program_padding(program *p, tensor_id t, int64_t offset, int64_t bytes);

/* An operation of this kind with no operands, on the compute stream. */
operation operation_make(operation_kind kind, phase when, int32_t unit);

/* Whether the operation has the operands that its kind asks for, of types and shapes that fit together. False with
 * EXIT_INTERNAL: operation, operand, what was found and what was expected. */
bool program_accepts(const program *p, const operation *o, error *e);

/* Appends a copy of an operation that is accepted (any other is an internal fault). Returns its index. */
int32_t program_append(program *p, const operation *o);

/* The launch of an operation, its data pointers relative to `arena` (NULL: shapes only, data is (void *)1 for
 * present operands), for a device's workspace, flops and bytes. */
launch program_launch(const program *p, const operation *o, void *arena);

/* Takes over an allocated array: it is freed with the program. Returns it. */
void *program_own(program *p, void *allocated);

/* Bytes by role and type at the moment of highest use, and which operation that is. From the list alone: what place
 * adds by alignment, by holding and by packing (engine/place.h) is not in it. */
typedef struct memory_profile {
    int64_t bytes[ROLE_COUNT][DTYPE_COUNT];
    int64_t live;      /* sum of the above: live bytes at the peak */
    int32_t operation; /* index of the operation at the peak; NO_OPERATION: nothing comes and goes */
} memory_profile;
memory_profile program_memory(const program *p);

/* Prints the program for people: phase, unit and operations with shapes, streams, waits and addresses. */
void program_print(const program *p, FILE *to);

#endif
