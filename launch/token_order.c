#include "launch/token_order.h"

#include <stddef.h>
#include <string.h>

/* One stable pass: `from` (NULL: 0 .. count-1) sorted by one digit of the tokens into `to`. */
static void sort_by_digit(const int32_t *tokens, int64_t count, int shift, const int32_t *from, int32_t *to) {
    enum { DIGITS = 1 << TOKEN_ORDER_BITS };
    int32_t next[DIGITS] = {0}; /* where the next position of each digit goes */
    for (int64_t i = 0; i < count; i++)
        next[tokens[i] >> shift & (DIGITS - 1)]++;
    int32_t before = 0;
    for (int digit = 0; digit < DIGITS; digit++) {
        int32_t here = next[digit];
        next[digit] = before;
        before += here;
    }
    for (int64_t i = 0; i < count; i++) {
        int32_t position = from ? from[i] : (int32_t)i;
        to[next[tokens[position] >> shift & (DIGITS - 1)]++] = position;
    }
}

void token_order(const int32_t *tokens, int64_t count, int64_t vocabulary, int32_t *order, int32_t *scratch) {
    const int32_t *from = NULL;
    int32_t *to = order;
    int shift = 0;
    do {
        sort_by_digit(tokens, count, shift, from, to);
        from = to;
        to = to == order ? scratch : order;
        shift += TOKEN_ORDER_BITS;
    } while ((vocabulary - 1) >> shift > 0);
    if (from != order)
        memcpy(order, from, (size_t)count * sizeof *order);
}
