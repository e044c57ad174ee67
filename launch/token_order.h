/* The order in which the backward of the embedding adds up rows: positions sorted by token. */
#ifndef FSDP_LAUNCH_TOKEN_ORDER_H
#define FSDP_LAUNCH_TOKEN_ORDER_H

#include <stdint.h>

enum { TOKEN_ORDER_BITS = 11 };

/* Fills order[count] with 0 .. count-1 sorted by (tokens[i], i); tokens are 0 .. vocabulary-1. Radix sort in digits of
 * TOKEN_ORDER_BITS: two passes for vocabularies of 2,049 to 4,194,304. scratch: count elements. */
void token_order(const int32_t *tokens, int64_t count, int64_t vocabulary, int32_t *order, int32_t *scratch);

#endif
