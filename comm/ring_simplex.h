/* Fractional packing: given rows with capacities and columns that use non-negative amounts of some rows, how much of
 * each column to take so that no row is overfull and the sum is largest. Columns are added as they are found; the
 * primal simplex method goes on from where it was. */
#ifndef FSDP_COMM_RING_SIMPLEX_H
#define FSDP_COMM_RING_SIMPLEX_H

#include <stdbool.h>

typedef struct simplex {
    int rows, columns;
    double *capacity; /* [rows], above 0 */
    double *used;     /* [columns][rows] */
    double *inverse;  /* [rows][rows]: of the basis */
    double *amount;   /* [rows]: of the basis's columns, capacities slightly shifted so that no two bases are equal */
    int *basis;       /* [rows]: column; below 0: what row -1 - basis has left over */
    double *price;    /* [rows]: the dual value, 0 or more */
} simplex;

void simplex_start(simplex *s, int rows, const double *capacity);
void simplex_free(simplex *s);

/* used: [rows], copied; at least one amount above 0. */
void simplex_add(simplex *s, const double *used);

/* The optimum over the columns so far, its prices in s->price. */
void simplex_solve(simplex *s);

/* amounts: [columns]; returns their sum. Exact capacities: to rounding. */
double simplex_amounts(const simplex *s, double *amounts);

#endif
