/* Launches on host memory, for tests of kernels. Every operand owns its data, which is aligned to its element and no
 * more (as views into larger tensors are) and ends where its allocation ends, so that the address sanitizer sees
 * what a kernel touches beyond it. */
#ifndef FSDP_TESTS_SUPPORT_LAUNCHES_H
#define FSDP_TESTS_SUPPORT_LAUNCHES_H

#include "engine/device/operation.h"

/* [rows, columns]; columns 1 gives a one-dimensional operand. Contents: zero. */
operand operand_make(dtype type, int64_t rows, int64_t columns);

/* Uniform in [-range, range), a function of `stream` and the element's index alone; type is F32 or F64. */
operand operand_random(dtype type, int64_t rows, int64_t columns, double range, uint64_t stream);

/* int32, uniform in [0, below). */
operand operand_random_integers(int64_t count, int64_t below, uint64_t stream);

operand operand_of_doubles(const double *values, int64_t count);

/* 0 .. n-1 sorted by (token, index), as the host makes it beside the batch. */
operand operand_order(const operand *tokens);

double operand_get(const operand *o, int64_t index);
void operand_set(operand *o, int64_t index, double value);
double operand_dot(const operand *a, const operand *b);
void operand_release(operand *o);

/* A launch with operands of its own. Floating-point operands of at most 32 bits become `type`. share: outputs that may
 * take the bytes of an input do so. workspace is NULL. */
launch launch_clone(const launch *l, dtype type, bool share);

/* Likewise, with operands as the letters of engine/device/operation.h have them: A and S become `storage`, G `gradient`
 * (fp32 or storage). */
launch launch_store(const launch *l, dtype storage, dtype gradient, bool share);
bool launch_can_share(const launch *l);
void launch_release(launch *l);

/* How far a result may be from what it should be, in roundoffs u of fp32 (of fp64 where it is that):
 * u * (relative * |wanted| + spread * (largest |wanted| of the output) + absolute).
 * The last two are for values that are what is left of sums, of the output's size or of a known one. To a result that
 * is stored in 16 bits one rounding of that format is added. */
typedef struct accuracy {
    double relative, spread, absolute;
} accuracy;

/* Fails the test, saying where, unless output o of `got` is that near to `want`. Infinities and NaN must agree. */
void launch_compare(const launch *got, const launch *want, int o, accuracy near, const char *where);

#endif
