/* Part of reference_kernels.h: from sums of squares to the update. Contract and formulas: update.h. */

static void granule_norm(const launch *l) {
    const attributes *a = &l->attributes;
    const real *gradient = l->in[0].data;
    double *squares = l->out[0].data;
    for (int64_t g = 0; g < operand_count(&l->out[0]); g++)
        squares[g] = 0;
    for (int64_t k = 0; k < a->segment_count; k++)
        for (int64_t i = a->segments[k].offset; i < a->segments[k].offset + a->segments[k].count; i++)
            squares[i / a->granule] += (double)gradient[i] * (double)gradient[i];
}

/* The loss scale that the next step will use. */
static void adjust_loss_scale(const attributes *a, bool bad, bool overflow, double *loss_scale) {
    if (a->loss_scale_interval == 0)
        return;
    if (overflow)
        loss_scale[LOSS_SCALE] = fmax(1, loss_scale[LOSS_SCALE] / 2);
    loss_scale[LOSS_SCALE_GOOD_STEPS] = bad ? 0 : loss_scale[LOSS_SCALE_GOOD_STEPS] + 1;
    if (loss_scale[LOSS_SCALE_GOOD_STEPS] >= (double)a->loss_scale_interval) {
        loss_scale[LOSS_SCALE] *= 2;
        loss_scale[LOSS_SCALE_GOOD_STEPS] = 0;
    }
}

static void step_result(const launch *l) {
    const attributes *a = &l->attributes;
    const double *contributions = l->in[0].data, *scalars = l->in[1].data;
    double *result = l->out[0].data, *update_count = l->out[1].data, *loss_scale = l->out[2].data;
    int64_t ranks = l->in[0].shape[0], width = l->in[0].shape[1];
    double loss = 0, squares = 0, bad_unit = -1;
    for (int64_t m = 0; m < a->passes * ranks; m++)
        loss += contributions[m % ranks * width + a->loss_column + m / ranks];
    for (int64_t u = 0; u < a->column_count; u++) {
        const granule_columns *unit = &a->columns[u];
        bool finite = true;
        for (int64_t g = 0; g < unit->granules; g++) {
            double square = contributions[g / unit->per_rank * width + unit->column + g % unit->per_rank];
            finite = finite && isfinite(square);
            squares += square;
        }
        if (!finite && bad_unit < 0)
            bad_unit = (double)u;
    }
    loss *= scalars[SCALAR_GRADIENT_SCALE];
    double scale = loss_scale != NULL ? loss_scale[LOSS_SCALE] : 1;
    double norm_of_all = sqrt(squares) / scale, clip = a->clip / (norm_of_all + 1e-6);
    bool bad = !isfinite(loss) || !isfinite(norm_of_all);
    bool overflow = bad && isfinite(loss) && a->loss_scale_interval > 0 && scale > 1;
    result[RESULT_LOSS] = loss;
    result[RESULT_NORM] = norm_of_all;
    result[RESULT_CLIP] = (a->clip > 0 && clip < 1 ? clip : 1) / scale;
    result[RESULT_BAD] = bad ? 1 : 0;
    result[RESULT_BAD_UNIT] = bad_unit;
    result[RESULT_OVERFLOW] = overflow ? 1 : 0;
    result[RESULT_LOSS_SCALE] = scale;
    *update_count += bad ? 0 : 1;
    adjust_loss_scale(a, bad, overflow, loss_scale);
}

static void adamw(const launch *l) {
    const attributes *a = &l->attributes;
    const real *gradient = l->in[0].data;
    const double *scalars = l->in[1].data, *result = l->in[2].data, *update_count = l->in[3].data;
    real *master = l->out[0].data, *first = l->out[1].data, *second = l->out[2].data;
    if (result[RESULT_BAD] != 0)
        return;
    double rate = scalars[SCALAR_LEARNING_RATE];
    double first_whole = 1 - pow(a->beta_first, *update_count), second_whole = 1 - pow(a->beta_second, *update_count);
    for (int64_t k = 0; k < a->segment_count; k++) {
        const segment *s = &a->segments[k];
        for (int64_t i = s->offset; i < s->offset + s->count; i++) {
            double g = (double)gradient[i] * result[RESULT_CLIP];
            double m = a->beta_first * (double)first[i] + (1 - a->beta_first) * g;
            double v = a->beta_second * (double)second[i] + (1 - a->beta_second) * g * g;
            double p = (double)master[i] * (s->decay ? 1 - rate * a->weight_decay : 1);
            first[i] = (real)m;
            second[i] = (real)v;
            master[i] = (real)(p - rate * (m / first_whole) / (sqrt(v / second_whole) + a->epsilon));
        }
    }
}
