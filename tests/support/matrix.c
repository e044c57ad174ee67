#include "support/matrix.h"

#include "engine/error.h"

#include <string.h>

enum { STRATEGY, FAMILY, RANKS, RECOMPUTE, PREFETCH, PASSES, REDUCE, UNIT, STORAGE, FACTORS };
enum { FULL, GRADIENTS, OPTIMIZER, NONE, HYBRID };
enum { MOST_LEVELS = 5, MOST_RUNS = 200 };

static const int levels[FACTORS] = {5, 2, 5, 3, 3, 2, 2, 2, 3};
static const int ranks_of[] = {1, 2, 3, 4, 8}, prefetch_of[] = {0, 1, 3}, passes_of[] = {1, 3};
static const dtype storage_of[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
static const recompute_policy recompute_of[] = {RECOMPUTE_NONE, RECOMPUTE_BLOCK, RECOMPUTE_MEMORY};

/* Hybrid sharding needs an even number of ranks; in groups of one rank there is no reduction each micro-batch. */
static bool possible(const int *row) {
    const int ranks = ranks_of[row[RANKS]];
    const bool one_rank_groups = row[STRATEGY] == NONE || (row[STRATEGY] == HYBRID && ranks == 2);
    return (row[STRATEGY] != HYBRID || ranks % 2 == 0) && !(one_rank_groups && ranks > 1 && row[REDUCE] == 0);
}

/* ---- a covering set: greedy, from all possible rows ---- */

typedef bool pairs[FACTORS][MOST_LEVELS][FACTORS][MOST_LEVELS];

static int uncovered(pairs covered, const int *row) {
    int count = 0;
    for (int a = 0; a < FACTORS; a++)
        for (int b = a + 1; b < FACTORS; b++)
            count += !covered[a][row[a]][b][row[b]];
    return count;
}

static void cover(pairs covered, const int *row) {
    for (int a = 0; a < FACTORS; a++)
        for (int b = a + 1; b < FACTORS; b++)
            covered[a][row[a]][b][row[b]] = true;
}

/* Counts `row` up like digits; false after the last. */
static bool next_row(int *row) {
    for (int f = 0; f < FACTORS; f++) {
        if (++row[f] < levels[f])
            return true;
        row[f] = 0;
    }
    return false;
}

static int covering_set(int rows[MOST_RUNS][FACTORS]) {
    pairs covered = {0};
    int count = 0;
    for (;;) {
        int row[FACTORS] = {0}, best = 0;
        check(count < MOST_RUNS, "too many runs");
        do {
            const int gain = possible(row) ? uncovered(covered, row) : 0;
            if (gain > best) {
                best = gain;
                memcpy(rows[count], row, sizeof row);
            }
        } while (next_row(row));
        if (best == 0)
            return count;
        cover(covered, rows[count++]);
    }
}

/* ---- runs ---- */

static matrix_run run_of(const int *row) {
    static const char *const names[] = {"full", "gradients", "optimizer", "none", "hybrid"};
    const int ranks = ranks_of[row[RANKS]], strategy = row[STRATEGY];
    return (matrix_run){.strategy = names[strategy],
                        .family = (model_family)row[FAMILY],
                        .ranks = ranks,
                        .group = strategy == NONE     ? 1
                                 : strategy == HYBRID ? ranks / 2
                                                      : ranks,
                        .prefetch = prefetch_of[row[PREFETCH]],
                        .passes = passes_of[row[PASSES]],
                        .unit_blocks = 1 + row[UNIT],
                        .keep_gathered = strategy == GRADIENTS || strategy == OPTIMIZER,
                        .reduce_each = row[REDUCE] == 0,
                        .recompute = recompute_of[row[RECOMPUTE]],
                        .storage = storage_of[row[STORAGE]]};
}

const matrix_run *matrix_runs(int *count) {
    static matrix_run runs[MOST_RUNS];
    static int made = 0;
    int rows[MOST_RUNS][FACTORS];
    if (made == 0) {
        made = covering_set(rows);
        for (int i = 0; i < made; i++)
            runs[i] = run_of(rows[i]);
    }
    *count = made;
    return runs;
}
