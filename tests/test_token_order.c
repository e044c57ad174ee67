/* The order in which an embedding's backward takes the tokens of a batch. */
#include "engine/checked.h"
#include "engine/rng.h"
#include "launch/token_order.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static void expect_order(int64_t count, int64_t vocabulary, bool repeat) {
    int32_t *tokens = memory_allocate((size_t)count, sizeof *tokens);
    int32_t *order = memory_allocate((size_t)count, sizeof *order);
    int32_t *scratch = memory_allocate((size_t)count, sizeof *scratch);
    bool *seen = memory_allocate((size_t)count, sizeof *seen);
    for (int64_t i = 0; i < count; i++) {
        double u = rng_uniform(5, (uint64_t)vocabulary, (uint64_t)i);
        tokens[i] = (int32_t)((repeat ? u * u * u : u) * (double)vocabulary);
    }
    tokens[count / 2] = (int32_t)(vocabulary - 1);
    token_order(tokens, count, vocabulary, order, scratch);
    for (int64_t i = 0; i < count; i++) {
        assert_true(order[i] >= 0 && order[i] < count && !seen[order[i]]);
        seen[order[i]] = true;
        if (i == 0)
            continue;
        int32_t a = tokens[order[i - 1]], b = tokens[order[i]];
        assert_true(a < b || (a == b && order[i - 1] < order[i]));
    }
    free(tokens);
    free(order);
    free(scratch);
    free(seen);
}

static void order_sorts_by_token_then_index(void **state) {
    (void)state;
    const int64_t vocabularies[] = {1, 2, 97, 2048, 2049, 50257, 128256, 4194304, 4194305, INT32_MAX};
    const int64_t counts[] = {1, 2, 1000, 100000};
    for (size_t v = 0; v < sizeof vocabularies / sizeof *vocabularies; v++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            expect_order(counts[c], vocabularies[v], c % 2 == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_sorts_by_token_then_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
