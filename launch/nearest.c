#include "launch/nearest.h"

#include "engine/checked.h"

#include <stdlib.h>
#include <string.h>

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

size_t word_distance(const char *a, const char *b) {
    size_t rows = strlen(a) + 1, columns = strlen(b) + 1;
    size_t *table = memory_allocate(rows * columns, sizeof *table); /* [i, j]: first i letters of a, first j of b */
    for (size_t i = 0; i < rows; i++)
        table[i * columns] = i;
    for (size_t j = 0; j < columns; j++)
        table[j] = j;
    for (size_t i = 1; i < rows; i++)
        for (size_t j = 1; j < columns; j++) {
            size_t *here = &table[i * columns + j];
            size_t replaced = here[-(ptrdiff_t)columns - 1] + (a[i - 1] != b[j - 1]);
            *here = smaller(replaced, smaller(here[-1], here[-(ptrdiff_t)columns]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                *here = smaller(*here, table[(i - 2) * columns + j - 2] + 1);
        }
    size_t distance = table[rows * columns - 1];
    free(table);
    return distance;
}

void nearest_consider(const char *word, const char *candidate, const char **best) {
    enum { LONGEST = 100 }; /* longer words are no slips, and the table stays small */
    if (strlen(word) > LONGEST)
        return;
    size_t distance = word_distance(word, candidate);
    if (distance * 3 <= strlen(candidate) && (*best == NULL || distance < word_distance(word, *best)))
        *best = candidate;
}
