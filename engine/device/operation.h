/* The kinds of operation that a step program is made of, and what a device receives to execute one.
 *
 * This file is the contract between the program (engine/program.h), the devices that execute it, and the reference
 * kernels that both are tested against. A kernel gets its operands, its attributes and its workspace: nothing else.
 *
 * Shapes below: N tokens of one micro-batch (sequences x sequence length T), C model width, V vocabulary, F feed
 * forward, H query heads, K key/value heads, D head width, Q = (H + 2 K) D. Everything is dense and row-major.
 * "?" an operand may be absent (data == NULL). "+" an output to which the operation may add instead of overwriting
 * it, when its bit in `accumulate` is set. "~i" an output that may share its bytes with input i.
 *
 * Types of operands, the letter before each: A the storage of activations and gathered parameters (fp32, bf16 or fp16,
 * the same for all operands A of an operation); G of gradients of parameters: fp32 or A; S any storage (fp32, bf16 or
 * fp16); W what travels: fp32 or bf16; f fp32; d fp64; i int32; * anything, the same everywhere in the operation.
 * Whatever the storage, operands are widened exactly, arithmetic and accumulators are fp32 at least, and a result is
 * rounded once, to nearest even, when it is stored; where a kind adds to an output, it is the sum that is rounded.
 *
 *   kind                inputs                                          outputs
 *   embedding           i tokens[N], A table[V,C], A positions[P,C]?    A out[N,C]
 *   embedding_backward  A dout[N,C], i tokens[N], i order[N]            G dtable[V,C]+
 *   position_backward   A dout[N,C]                                     G dpositions[P,C]+
 *   norm                A x[N,C], A residual[N,C]?, A weight[C],        A normed[N,C], A sum[N,C]?~0,
 *                       A bias[C]?                                      f statistics[N,2]
 *   norm_backward       A dnormed[N,C], A dsum[N,C]?, A sum[N,C],       A dsum[N,C]~0, G dweight[C]+, G dbias[C]?+
 *                       f statistics[N,2], A weight[C]
 *   matmul              A a[m,k], A b[k,n] (each may be stored          G c[m,n]+, A preactivation[m,n]?,
 *                       transposed), A bias[n]?                         G column_sums[n]?
 *   column_sum          A x[N,n]                                        G out[n]+
 *   rope                A qkv[N,Q], f cosine[T,D/2], f sine[T,D/2]      A out[N,Q]~0
 *   attention           A qkv[N,Q]                                      A out[N,H D], f logsumexp[N,H]
 *   attention_backward  A dout[N,H D], A qkv[N,Q], A out[N,H D],        A dqkv[N,Q]
 *                       f logsumexp[N,H]
 *   gelu                A x[N,F]                                        A out[N,F]
 *   gelu_backward       A dout[N,F], A x[N,F]                           A dx[N,F]~0
 *   swiglu              A gate_up[N,2F]                                 A out[N,F]
 *   swiglu_backward     A dout[N,F], A gate_up[N,2F]                    A dgate_up[N,2F]~1
 *   cross_entropy       A logits[n,V], i targets[n], d scalars[S],      f loss[n], A dlogits[n,V]?~0
 *                       d loss_scale[L]?
 *   add                 A a, A b                                        A out~0
 *   fill                                                                S out
 *   cast                S x[n]                                          S out[n]
 *   sum                 f x[n]                                          d out[1]
 *   granule_norm        f gradient shard [k g]                          d squares[k]
 *   step_result         d contributions[ranks, c], d scalars[S]         d result[R], d update_count[1]+,
 *                                                                       d loss_scale[L]?+
 *   adamw               f gradient shard, d scalars[S], d result[R],    f master+, f first moment+, f second moment+
 *                       d update_count[1]
 *   copy_in             (a host buffer)                                 * out
 *   copy_out            * x                                             (a host buffer)
 *   all_gather          * shard[k]                                      * whole[group size x k]
 *   reduce_scatter      W whole[group size x k]                         f shard[k]+
 *   all_reduce          W x[n]                                          W out[n]~0 (x's type)
 *
 * Formulas
 *   embedding: out[i] = table[tokens[i]] + positions[i mod T].
 *   embedding_backward: dtable[v] = sum of dout[i] over tokens[i] == v, in the order in which i stands in `order`,
 *     which holds 0..N-1 sorted by (token, i). Overwriting fills the rows of absent tokens with zero.
 *   norm, layer: normed = (s - mean) * rstd * weight + bias with s = x + residual, rstd = 1/sqrt(var + epsilon), biased
 *     variance; rms: normed = s * rstd * weight with rstd = 1/sqrt(mean(s^2) + epsilon). statistics = (mean, rstd);
 *     mean is 0 for rms. Without a residual there is no sum output and s = x; with one, s
 *     is the sum as it is stored.
 *   norm_backward: its `sum` input is s. Output dsum = the norm's own gradient + the input dsum.
 *   matmul: c = op(a) op(b) + bias. transpose_a: a is stored [k,m]; transpose_b: b is stored [n,k]. tf32: fp32
 *     operands may be rounded to TF32 (10 bits of fraction); a device without it multiplies in fp32.
 *     A matmul may take over what others do before and behind it (engine/fuse.h), where it overwrites c. gelu: c is of
 *     type A and the gelu of the above, which is written to preactivation; without that, nowhere. Its gelu may be taken
 *     before it is rounded. column_sums: what column_sum makes of b, which is not transposed then, in c's type.
 *   rope: Hugging Face's half-split rotation of every query and key head: with j < D/2,
 *     out[j] = x[j] cos[t,j] - x[j+D/2] sin[t,j];  out[j+D/2] = x[j+D/2] cos[t,j] + x[j] sin[t,j];
 *     inverse: sin negated. Values are copied. Row layout of qkv: H query heads, K key heads, K value heads.
 *   attention: softmax(q k^T scale) v per head and sequence, query head h reads key head h / (H / K); causal: only
 *     keys at or before the query. logsumexp is natural, of the scaled scores. No T x T tensor is ever written.
 *     Between its two products attention may round probabilities, and attention_backward their gradients, to A.
 *   gelu: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).  swiglu: gate / (1 + exp(-gate)) * up; row = gate | up.
 *   cross_entropy: loss = logsumexp(logits) - logits[target]; dlogits = (softmax - onehot) * scalars[GRADIENT_SCALE]
 *     times loss_scale[LOSS_SCALE] where there is one; a target below 0 is not counted: loss 0, gradient 0.
 *   cast: out = x, rounded to nearest even; what is beyond fp16's largest number becomes infinity. out never shares
 *     bytes with x.
 *   reduce_scatter, all_reduce: sums in fp32, rounded when they are stored.
 *   granule_norm: fp64 sum of squares of each granule, over the segments only (never padding).
 *   step_result, adamw: see engine/device/update.h.
 */
#ifndef FSDP_ENGINE_DEVICE_OPERATION_H
#define FSDP_ENGINE_DEVICE_OPERATION_H

#include "engine/device/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum operation_kind {
    OPERATION_EMBEDDING,
    OPERATION_EMBEDDING_BACKWARD,
    OPERATION_POSITION_BACKWARD,
    OPERATION_NORM,
    OPERATION_NORM_BACKWARD,
    OPERATION_MATMUL,
    OPERATION_COLUMN_SUM,
    OPERATION_ROPE,
    OPERATION_ATTENTION,
    OPERATION_ATTENTION_BACKWARD,
    OPERATION_GELU,
    OPERATION_GELU_BACKWARD,
    OPERATION_SWIGLU,
    OPERATION_SWIGLU_BACKWARD,
    OPERATION_CROSS_ENTROPY,
    OPERATION_ADD,
    OPERATION_FILL,
    OPERATION_CAST,
    OPERATION_SUM,
    OPERATION_GRANULE_NORM,
    OPERATION_STEP_RESULT,
    OPERATION_ADAMW,
    OPERATION_COPY_IN,
    OPERATION_COPY_OUT,
    OPERATION_ALL_GATHER,
    OPERATION_REDUCE_SCATTER,
    OPERATION_ALL_REDUCE,
    OPERATION_KIND_COUNT
} operation_kind;

enum { OPERATION_INPUTS = 5, OPERATION_OUTPUTS = 3, OPERAND_DIMENSIONS = 3 };

/* The fp64 scalars that differ from step to step, copied in before the step: indices into scalars[S]. */
enum step_scalar {
    SCALAR_GRADIENT_SCALE, /* what a token's loss gradient starts with: 1 / counted tokens of the global batch */
    SCALAR_LEARNING_RATE,
    SCALAR_COUNT
};

typedef enum norm_type { NORM_LAYER, NORM_RMS } norm_type;

/* A run of elements of one shard that belongs to one parameter tensor; offsets in elements from the shard's start. */
typedef struct segment {
    int64_t offset, count;
    bool decay; /* weight decay applies */
} segment;

/* Where step_result finds the squares of one unit in a row of contributions: granule g of the unit was summed by the
 * group's rank g / per_rank, in column `column` + g mod per_rank. */
typedef struct granule_columns {
    int64_t granules, per_rank, column;
} granule_columns;

/* Which host buffer a copy_in reads or a copy_out writes. */
typedef enum host_buffer {
    HOST_TOKENS,
    HOST_TARGETS,
    HOST_ORDER,
    HOST_SCALARS,
    HOST_RESULT,
    HOST_BUFFER_COUNT
} host_buffer;

/* Which ranks take part in a collective: the ranks that share a model's shards, those that hold the same shard, all. */
typedef enum rank_group { GROUP_SHARD, GROUP_REPLICA, GROUP_WORLD } rank_group;

/* Everything about an operation that is not an operand. Only the fields of its kind are read. */
typedef struct attributes {
    bool transpose_a, transpose_b;       /* matmul */
    bool tf32, gelu;                     /* matmul */
    norm_type norm;                      /* norm, norm_backward */
    double epsilon;                      /* norm, norm_backward; adamw */
    int64_t sequence;                    /* T: embedding, position_backward, rope, attention (and backward) */
    int64_t heads, kv_heads, head_width; /* rope, attention (and backward) */
    bool causal;                         /* attention (and backward) */
    double scale;                        /* attention (and backward): usually 1/sqrt(D) */
    bool inverse;                        /* rope */
    double value;                        /* fill */
    const segment *segments;             /* granule_norm, adamw: of this rank's shard, in ascending order */
    int64_t segment_count;
    int64_t granule;                /* granule_norm: elements of a granule */
    const granule_columns *columns; /* step_result: one per unit, in flat order */
    int64_t column_count;
    int64_t group_size;          /* step_result: rows that hold one copy of the whole model */
    int64_t loss_column, passes; /* step_result: column of the first of `passes` loss sums */
    double clip;                 /* step_result: 0 is off */
    int64_t loss_scale_interval; /* step_result: good steps in a row after which the loss scale doubles; 0: it never
                                    changes */
    double beta_first, beta_second, weight_decay; /* adamw */
    host_buffer host;                             /* copy_in, copy_out */
    int64_t host_offset;                          /* bytes into the host buffer */
    rank_group group;                             /* all_gather, reduce_scatter, all_reduce */
    int64_t odd; /* reduce_scatter, all_reduce: runs of `odd` ranks are summed in order, then these sums pairwise; the
                    group is odd times a power of two. 0: in whatever order suits, the same in every run */
} attributes;

/* A tensor as a kernel sees it. Absent: data == NULL. One-dimensional tensors have shape {n, 1, 1}; unused trailing
 * dimensions are 1. data is aligned to 256 bytes in a program, unless it is a view of some rows of a larger tensor; a
 * kernel of the CPU works with data that is aligned to its element. */
typedef struct operand {
    void *data;
    dtype type;
    int64_t shape[OPERAND_DIMENSIONS];
} operand;

/* One operation, ready to execute. */
typedef struct launch {
    operation_kind kind;
    struct attributes attributes; /* spelled out for C++ */
    operand in[OPERATION_INPUTS], out[OPERATION_OUTPUTS];
    uint32_t accumulate; /* bit o set: add to out[o] */
    /* As many bytes as the device asked for; aligned to 256; contents undefined. copy_in, copy_out: host memory. */
    void *workspace;
} launch;

/* What is fixed about a kind. */
typedef struct operation_signature {
    const char *name;
    const char *inputs[OPERATION_INPUTS]; /* names; NULL: no such operand */
    const char *outputs[OPERATION_OUTPUTS];
    char input_types[OPERATION_INPUTS + 1], output_types[OPERATION_OUTPUTS + 1]; /* a letter per operand, see above */
    uint32_t optional_inputs, optional_outputs;                                  /* bit i set: may be absent */
    uint32_t accumulates;             /* bit o set: out[o] may be accumulated into */
    int8_t shares[OPERATION_OUTPUTS]; /* input whose bytes out[o] may take; -1: none */
} operation_signature;

const operation_signature *operation_signature_of(operation_kind kind);

/* The type of operands A; fp32 where there is none. */
dtype operation_storage(const launch *l);

/* The first operand whose type the kind does not accept beside the others: the place of an input, OPERATION_INPUTS +
 * that of an output; -1: all fit. */
int operation_wrong_type(const launch *l);

/* Likewise the first whose shape does not fit the others and the attributes; expected[OPERAND_DIMENSIONS]: the shape
 * that it must have, 0 where the size is free. Only operands that the kind has may be there. */
int operation_wrong_shape(const launch *l, int64_t *expected);

static inline bool operation_is_collective(operation_kind kind) {
    return kind == OPERATION_ALL_GATHER || kind == OPERATION_REDUCE_SCATTER || kind == OPERATION_ALL_REDUCE;
}

static inline int64_t operand_count(const operand *o) { /* elements */
    return o->shape[0] * o->shape[1] * o->shape[2];
}

/* Floating-point operations that the kind needs by definition (a multiply-add is two), from shapes and attributes. */
double operation_flops(const launch *l);

/* Bytes that must be read and written at least, each operand once. */
double operation_bytes(const launch *l);

#endif
