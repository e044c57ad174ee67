#include "comm/ring_simplex.h"

#include "engine/checked.h"
#include "engine/error.h"

#include <stdlib.h>
#include <string.h>

/* Capacities of real machines are equal so often that the method would stand still; shifts far below what matters, all
 * different, prevent that. Amounts are worked out with the true capacities at the end. */
static double shifted(const simplex *s, int row) {
    return s->capacity[row] * (1 + 1e-9 * (1 + (double)((row * 7919 + 17) % 1009) / 1009));
}

void simplex_start(simplex *s, int rows, const double *capacity) {
    const size_t n = (size_t)rows;
    *s = (simplex){.rows = rows};
    s->capacity = memory_allocate(n, sizeof *s->capacity);
    s->inverse = memory_allocate(n * n, sizeof *s->inverse);
    s->amount = memory_allocate(n, sizeof *s->amount);
    s->basis = memory_allocate(n, sizeof *s->basis);
    s->price = memory_allocate(n, sizeof *s->price);
    memcpy(s->capacity, capacity, n * sizeof *capacity);
    for (int r = 0; r < rows; r++) {
        s->inverse[(size_t)r * n + (size_t)r] = 1;
        s->amount[r] = shifted(s, r);
        s->basis[r] = -1 - r;
    }
}

void simplex_free(simplex *s) {
    free(s->capacity);
    free(s->used);
    free(s->inverse);
    free(s->amount);
    free(s->basis);
    free(s->price);
    *s = (simplex){0};
}

static double *column(const simplex *s, int c) {
    return s->used + (size_t)c * (size_t)s->rows;
}

void simplex_add(simplex *s, const double *used) {
    s->used = memory_grow(s->used, ((size_t)s->columns + 1) * (size_t)s->rows, sizeof *s->used);
    memcpy(column(s, s->columns++), used, (size_t)s->rows * sizeof *used);
}

static double dot(const double *a, const double *b, int count) {
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

static void find_prices(simplex *s) {
    memset(s->price, 0, (size_t)s->rows * sizeof *s->price);
    for (int r = 0; r < s->rows; r++)
        for (int k = 0; s->basis[r] >= 0 && k < s->rows; k++)
            s->price[k] += s->inverse[(size_t)r * (size_t)s->rows + (size_t)k];
}

/* The column, or the left-over of a row (below 0), whose entry gains most per unit; 0 gained: none. */
static int find_entering(const simplex *s, double *gain) {
    int entering = 0;
    *gain = 1e-9;
    for (int c = 0; c < s->columns; c++) {
        const double gained = 1 - dot(s->price, column(s, c), s->rows);
        if (gained > *gain)
            *gain = gained, entering = c;
    }
    for (int r = 0; r < s->rows; r++)
        if (-s->price[r] > *gain)
            *gain = -s->price[r], entering = -1 - r;
    return entering;
}

/* direction: how much of each basic column one unit of the entering one takes away. */
static void find_direction(const simplex *s, int entering, double *direction) {
    for (int r = 0; r < s->rows; r++) {
        const double *row = s->inverse + (size_t)r * (size_t)s->rows;
        direction[r] = entering < 0 ? row[-1 - entering] : dot(row, column(s, entering), s->rows);
    }
}

static int find_leaving(const simplex *s, const double *direction) {
    int leaving = -1;
    double least = 0;
    for (int r = 0; r < s->rows; r++) {
        if (direction[r] <= 1e-11)
            continue;
        const double ratio = s->amount[r] / direction[r];
        if (leaving < 0 || ratio < least)
            least = ratio, leaving = r;
    }
    check(leaving >= 0, "a column that uses nothing");
    return leaving;
}

static void pivot(simplex *s, int entering, int leaving, const double *direction) {
    double *const out = s->inverse + (size_t)leaving * (size_t)s->rows;
    for (int k = 0; k < s->rows; k++)
        out[k] /= direction[leaving];
    s->amount[leaving] /= direction[leaving];
    for (int r = 0; r < s->rows; r++) {
        if (r == leaving || direction[r] == 0)
            continue;
        double *row = s->inverse + (size_t)r * (size_t)s->rows;
        for (int k = 0; k < s->rows; k++)
            row[k] -= direction[r] * out[k];
        s->amount[r] -= direction[r] * s->amount[leaving];
    }
    s->basis[leaving] = entering;
}

void simplex_solve(simplex *s) {
    double *direction = memory_allocate((size_t)s->rows, sizeof *direction);
    enum { PIVOTS_MOST = 20000 }; /* never met; a solution that is not the best is still valid */
    for (int pivots = 0; pivots < PIVOTS_MOST; pivots++) {
        double gain;
        find_prices(s);
        const int entering = find_entering(s, &gain);
        if (gain <= 1e-9)
            break;
        find_direction(s, entering, direction);
        pivot(s, entering, find_leaving(s, direction), direction);
    }
    free(direction);
}

double simplex_amounts(const simplex *s, double *amounts) {
    double sum = 0;
    memset(amounts, 0, (size_t)s->columns * sizeof *amounts);
    for (int r = 0; r < s->rows; r++) {
        if (s->basis[r] < 0)
            continue;
        const double amount = dot(s->inverse + (size_t)r * (size_t)s->rows, s->capacity, s->rows);
        amounts[s->basis[r]] = amount > 0 ? amount : 0;
        sum += amounts[s->basis[r]];
    }
    return sum;
}
