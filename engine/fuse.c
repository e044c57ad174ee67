#include "engine/fuse.h"

#include "engine/checked.h"

#include <stdlib.h>

/* For every tensor that is no view: how many inputs it or one of its views is. */
static int32_t *count_reads(const program *p) {
    int32_t *reads = memory_allocate((size_t)p->tensor_count, sizeof *reads);
    for (int32_t i = 0; i < p->operation_count; i++)
        for (int k = 0; k < OPERATION_INPUTS; k++)
            if (p->operations[i].in[k] != NO_TENSOR)
                reads[program_base(p, p->operations[i].in[k])]++;
    return reads;
}

static bool take_gelu(const program *p, const operation *product, const operation *next, const int32_t *reads,
                      operation *fused) {
    if (product->kind != OPERATION_MATMUL || next->kind != OPERATION_GELU || next->in[0] != product->out[0] ||
        product->accumulate != 0)
        return false;
    *fused = *product;
    fused->attributes.gelu = true;
    fused->out[0] = next->out[0];
    if (reads[program_base(p, product->out[0])] > 1)
        fused->out[1] = product->out[0];
    return true;
}

static bool take_sums(const operation *sums, const operation *product, operation *fused) {
    if (sums->kind != OPERATION_COLUMN_SUM || product->kind != OPERATION_MATMUL || sums->in[0] != product->in[1] ||
        product->attributes.transpose_b || sums->accumulate != 0 || product->accumulate != 0)
        return false;
    *fused = *product;
    fused->out[2] = sums->out[0];
    return true;
}

static bool executes(const program *p, device *d, const operation *fused) {
    error e = {0};
    check(program_accepts(p, fused, &e), "%s", e.message);
    const launch l = program_launch(p, fused, NULL);
    return d->functions->fuses(d, &l);
}

void fuse(program *p, device *d) {
    if (d->functions->fuses == NULL)
        return;
    int32_t *reads = count_reads(p), kept = 0;
    for (int32_t i = 0; i < p->operation_count; i++, kept++) {
        const operation *o = &p->operations[i];
        operation fused;
        const bool merged = i + 1 < p->operation_count &&
                            (take_gelu(p, o, o + 1, reads, &fused) || take_sums(o, o + 1, &fused)) &&
                            executes(p, d, &fused);
        p->operations[kept] = merged ? fused : *o;
        i += merged;
    }
    p->operation_count = kept;
    free(reads);
}
