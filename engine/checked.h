/* Checked host memory and checked size arithmetic. Running out of host memory for the program's own small
 * structures is an internal fault (abort with a text); what a user's sizes decide is checked before allocating. */
#ifndef FSDP_ENGINE_CHECKED_H
#define FSDP_ENGINE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *memory_allocate(size_t count, size_t size);            /* zeroed; free() releases it */
void *memory_grow(void *pointer, size_t count, size_t size); /* like realloc of count * size */
char *memory_copy_string(const char *text);
char *memory_format(const char *format, ...) __attribute__((format(printf, 1, 2))); /* caller frees */

/* *product = a * b; false when it does not fit in int64_t or an operand is negative. */
bool checked_multiply(int64_t a, int64_t b, int64_t *product);

/* a * b for sizes that were checked before: an overflow is an internal fault. */
int64_t must_multiply(int64_t a, int64_t b);

static inline int64_t round_up(int64_t value, int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}
static inline int64_t divide_up(int64_t value, int64_t divisor) {
    return (value + divisor - 1) / divisor;
}
static inline int64_t minimum(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static inline int64_t maximum(int64_t a, int64_t b) {
    return a > b ? a : b;
}

#endif
